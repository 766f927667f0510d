"""Samples come from the distribution that was asked for, and from each sentence's own generator."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from decoder_cases import BEGIN, END, Table, begins, table

from zoo.decoding import Constraints, Hypothesis, Sampling

WORDS = 6


def drawn(decoder: Table, search: Sampling, seeds: list[int], longest: int = 5) -> list[list[Hypothesis]]:
    count = len(seeds)
    return search(decoder, torch.zeros(count, dtype=torch.long), begins(count), end=END, longest=longest, seeds=seeds)


def firsts(decoder: Table, **options: Any) -> torch.Tensor:
    """Frequencies of the first token in 4,000 texts."""
    found = drawn(decoder, Sampling(draws=40, **options), list(range(100)), longest=1)
    counts = Counter(each.target(END)[0] for hypotheses in found for each in hypotheses)
    return torch.tensor([counts[word] / 4000 for word in range(WORDS)], dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_the_probabilities(temperature: float) -> None:
    decoder = table(1, 5, WORDS, 0)
    expected = (decoder.logits[0, 0, BEGIN] / temperature).softmax(-1)
    assert (firsts(decoder, temperature=temperature) - expected).abs().max() < 0.03


def test_only_the_most_probable_tokens_are_drawn() -> None:
    decoder = table(1, 5, WORDS, 0)
    probabilities = decoder.logits[0, 0, BEGIN].softmax(-1)
    order = probabilities.argsort(descending=True)
    for count in (1, 2, 3):
        kept = torch.zeros(WORDS, dtype=torch.float64)
        kept[order[:count]] = probabilities[order[:count]]
        assert (firsts(decoder, top_k=count) - kept / kept.sum()).abs().max() < 0.03
        below = probabilities[order[:count]].sum().item()
        assert (firsts(decoder, top_p=below - 1e-6) - kept / kept.sum()).abs().max() < 0.03
    assert firsts(decoder, top_p=1e-9)[order[0]] == 1.0
    both = firsts(decoder, top_k=3, top_p=0.5).nonzero().flatten()
    assert set(both.tolist()) <= set(order[:3].tolist())


def test_a_seed_is_all_that_a_text_depends_on() -> None:
    decoder, search = table(1, 5, WORDS, 0), Sampling(draws=3)
    together = drawn(decoder, search, [7, 8, 9])
    torch.rand(5)
    assert drawn(decoder, search, [9, 7]) == [together[2], together[0]]
    more = drawn(decoder, Sampling(draws=5), [7])
    assert more[0][:3] == together[0]
    assert len({each.tokens for hypotheses in drawn(decoder, search, list(range(30))) for each in hypotheses}) > 20


def test_scores_are_those_of_the_model() -> None:
    """Temperature, cuts and constraints change what is drawn, and not what it is worth."""
    decoder = table(1, 5, WORDS, 0)
    for search in (Sampling(), Sampling(temperature=0.4, top_k=2, constraints=Constraints(never=(2,)))):
        for [each] in drawn(decoder, search, list(range(20))):
            text = each.target(END)
            rows = decoder.logits[0, torch.arange(len(text)), torch.tensor((BEGIN, *text[:-1]))].log_softmax(-1)
            total = rows.gather(1, torch.tensor(text).unsqueeze(1)).sum().item()
            assert each.score == each.log_probability == pytest.approx(total)


def test_a_text_that_nothing_may_follow_stops() -> None:
    rules = Constraints(shortest=9, unrepeated=1, never=(2, 3, 4, 5))
    [[found]] = drawn(table(1, 5, WORDS, 0), Sampling(constraints=rules), [0])
    assert (found.tokens, found.ended) == ((1,), False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "draws is to be a whole number of at least 1 and of at most 1000"),
        ({"temperature": 0.0}, "temperature is to be a number above 0"),
        ({"top_k": 0}, "top_k is to be a whole number of at least 1 or null"),
        ({"top_p": 0.0}, "top_p is to be a number above 0 and of at most 1"),
    ],
)
def test_options_out_of_range_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**options)


def test_every_sentence_needs_a_seed() -> None:
    with pytest.raises(ValueError, match="there are 2 sentences and 1 seeds"):
        Sampling()(table(1, 5, WORDS, 0), torch.zeros(2, dtype=torch.long), begins(2), end=END, longest=5, seeds=[1])
