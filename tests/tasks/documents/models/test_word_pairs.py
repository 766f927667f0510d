"""Vectors of pairs of words: which pairs share one, in which vocabulary, and what is left out in training."""

from __future__ import annotations

import itertools

import pytest
import torch

from zoo.tasks.documents.models.bigrams import WordPairs

NAMES = ["<unk>", "not", "good", "läuft", "."]


def test_each_pair_has_its_own_row_and_order_matters() -> None:
    pairs = WordPairs(words=len(NAMES), dim=2)
    pairs.name(NAMES)
    words = torch.tensor(list(itertools.product(range(5), repeat=2))).flatten()
    rows = pairs.rows(words, torch.arange(50) // 2)
    assert (rows >= 0).all()
    assert (rows < 2**19).all()
    assert len(set(rows[1::2].tolist())) == 25
    firsts = rows[::2].view(5, 5)
    assert (firsts == firsts[:, :1]).all()  # what stands before a sentence does not matter
    assert not {*firsts.flatten().tolist()} & {*rows[1::2].tolist()}


def test_a_pair_has_the_same_row_in_every_vocabulary() -> None:
    other = [NAMES[number] for number in (4, 2, 0, 1, 3)]
    one, two = WordPairs(words=5, dim=2), WordPairs(words=5, dim=2)
    one.name(NAMES)
    two.name(other)
    text, sentences = ["not", "good", ".", "läuft", "good"], torch.tensor([0, 0, 0, 1, 1])
    found = [
        pairs.rows(torch.tensor([names.index(word) for word in text]), sentences)
        for pairs, names in ((one, NAMES), (two, other))
    ]
    assert torch.equal(*found)
    with pytest.raises(ValueError, match="2 names for 5 words"):
        one.name(["a", "b"])


def test_pairs_start_at_zero_and_are_left_out_as_a_whole() -> None:
    pairs, words = WordPairs(words=5, dim=8, dropout=0.25), torch.arange(4000) % 5
    sentences = torch.zeros(4000, dtype=torch.int64)
    assert not pairs(words, sentences, sentences).any()
    torch.nn.init.ones_(pairs.table.weight)
    torch.manual_seed(0)
    found = pairs(words, sentences, sentences)
    assert torch.equal(found, found[:, :1].expand(-1, 8))
    assert sorted(set(found[:, 0].tolist())) == pytest.approx([0.0, 4 / 3])
    assert found.mean().item() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(pairs.eval()(words, sentences, sentences), torch.ones(4000, 8))


def test_documents_without_pairs() -> None:
    """All or none of a document's are left out, and those that stay keep their size."""
    pairs, words = WordPairs(words=5, dim=1, pairless=0.25), torch.arange(4000) % 5
    torch.nn.init.ones_(pairs.table.weight)
    documents = torch.arange(4000) // 2
    torch.manual_seed(0)
    found = pairs(words, documents, documents).view(-1, 2)
    assert torch.equal(found[:, 0], found[:, 1])
    assert set(found.unique().tolist()) == {0.0, 1.0}
    assert found.mean().item() == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize("options", [{"dim": 0}, {"rows": 0}, {"words": 0}])
def test_bad_sizes_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="is to be a whole number of at least 1"):
        WordPairs(**{"words": 5, "dim": 2} | options)
