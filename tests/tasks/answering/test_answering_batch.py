"""Batches of questions, and the spans that answer them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from answering_cases import BATCHES, examples_for, passages, pictures, premises
from largest import Largest
from torch import Tensor

from zoo.tasks.answering.batch import UNKNOWN, ExtractiveQABatch, NLIBatch, VQABatch
from zoo.tasks.answering.spans import best_spans, span_losses


def test_texts_are_padded_and_links_become_a_mask() -> None:
    spans, labels = ExtractiveQABatch.collate(passages()), NLIBatch.collate(premises())
    for batch in (spans, labels):
        assert batch.question.lengths.tolist() == [3, 1, 6]
        assert batch.passage.lengths.tolist() == [5, 2, 1]
        assert (batch.ids, batch.kinds, batch.splits) == (("a", "b", "c"), ("x", "y", "x"), ("", "", ""))
        assert batch.gold.shape == (3, 6, 5)
        assert batch.gold.nonzero().tolist() == [[0, 0, 2], [2, 0, 0], [2, 5, 0]]
        assert len(batch) == 3
        assert batch.written is None
    assert spans.spans.tolist() == [[3, 4], [0, 0], [0, 0]]
    assert labels.answers.tolist() == [0, 2, 1]
    assert (labels.premise, labels.hypothesis) == (labels.passage, labels.question)


def test_pictures_are_normalised_and_boxes_are_padded() -> None:
    batch = VQABatch.collate(pictures(), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    expected = (torch.stack([each.pixels for each in pictures()]).float() / 255 - 0.5) / 0.25
    torch.testing.assert_close(batch.picture.pixels, expected)
    assert batch.regions.tolist() == [[[0.0, 0.0, 0.5, 0.25]], [[0.0] * 4]]
    torch.testing.assert_close(batch.to("cpu").answers, torch.tensor([1, 0]))


def test_what_is_not_known_of_one_is_not_known() -> None:
    first, *others = passages()
    batch = ExtractiveQABatch.collate([replace(first, span=None, links=None), *others])
    assert batch.spans.tolist() == [[UNKNOWN, UNKNOWN], [0, 0], [0, 0]]
    assert batch.is_known.tolist() == [False, True, True]
    assert batch.gold is None
    premise, *others = premises()
    batch = NLIBatch.collate([replace(premise, answer=UNKNOWN), *others])
    assert batch.answers.tolist() == [UNKNOWN, 2, 1]
    assert batch.is_known.tolist() == [False, True, True]
    assert VQABatch.collate([replace(each, regions=None) for each in pictures()]).regions is None


def test_texts_have_words() -> None:
    first, second, _ = passages()
    for empty in (replace(second, question=[]), replace(second, passage=[])):
        with pytest.raises(ValueError, match="must have a token"):
            ExtractiveQABatch.collate([first, empty])
    with pytest.raises(ValueError, match="must have a token"):
        VQABatch.collate([replace(pictures()[0], question=[])])


@pytest.mark.parametrize("name", BATCHES)
def test_some_questions_are_a_batch_without_the_padding_of_the_others(name: str) -> None:
    """That is for a net: nothing that people read, and no gold."""
    examples = examples_for(name)
    batch, alone = BATCHES[name].collate(examples), BATCHES[name].collate(examples[1:2])
    selected = batch.select(torch.tensor([1]))
    assert selected.written is None
    assert torch.equal(selected.question.tokens, alone.question.tokens)
    assert torch.equal(selected.targets, alone.targets)
    assert selected.ids == alone.ids
    if name == "coattention":
        assert torch.equal(selected.pixels, alone.pixels)
    else:
        assert torch.equal(selected.passage.tokens, alone.passage.tokens)


def test_a_shortened_text_keeps_its_answer_inside() -> None:
    short = passages()[0].shorten(2)
    assert (short.question, short.passage, short.span, short.links) == ([1, 2], [4, 5], (1, 1), None)
    assert premises()[0].shorten(2).answer == 0


@pytest.mark.parametrize("longest", [None, 1, 2, 9])
def test_the_best_span_is_the_best_of_all(longest: int | None) -> None:
    torch.default_generator.manual_seed(1)
    start, end = (3 * torch.randn(20, 6, dtype=torch.float64) for _ in range(2))
    start[0, 4:] = end[0, 4:] = start[1, 1:] = end[1, 1:] = -math.inf
    found, value = best_spans(start, end, longest=longest)
    for number in range(20):
        first, last = (softmax(x[number]) for x in (start, end))
        pairs = itertools.product(range(6), range(6))
        spans = [(i, j) for i, j in pairs if i <= j and (longest is None or j - i < longest)]
        best = max(spans, key=lambda span: first[span[0]] * last[span[1]])
        assert tuple(found[number].tolist()) == best
        assert float(value[number]) == pytest.approx(first[best[0]] * last[best[1]], abs=1e-12)


@pytest.mark.parametrize("longest", [None, 1, 3, 40])
def test_the_span_of_a_long_passage_is_that_of_all_pairs(longest: int | None) -> None:
    """Also where many spans are equally probable, and without a tensor of n x n."""
    torch.default_generator.manual_seed(2)
    start, end = (torch.randint(3, (8, 300)).double() for _ in range(2))
    start[0, 250:] = end[0, 250:] = -math.inf
    first, last = (x.log_softmax(-1) for x in (start, end))
    length = torch.arange(300) - torch.arange(300)[:, None] + 1
    permitted = (length >= 1) & (length <= (longest or 300))
    pairs = (first[:, :, None] + last[:, None]).masked_fill(~permitted, -math.inf)
    value, at = pairs.flatten(1).max(1)
    with Largest() as seen:
        found, probability = best_spans(start, end, longest=longest)
    assert torch.equal(found, torch.stack([at // 300, at % 300], 1))
    assert torch.equal(probability, value.exp())
    assert seen.elements <= 8 * 300 * (longest or 1) + 8 * 300


def test_the_loss_is_of_both_ends() -> None:
    start, end = torch.randn(2, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    found = span_losses(start, end, torch.tensor([[1, 3], [0, 0]]))
    for number, (i, j) in enumerate(((1, 3), (0, 0))):
        expected = -math.log(softmax(start[number])[i]) - math.log(softmax(end[number])[j])
        assert float(found[number]) == pytest.approx(expected)


def softmax(scores: Tensor) -> list[float]:
    powers = [math.exp(score) for score in scores.tolist()]
    return [power / sum(powers) for power in powers]
