"""Batches of texts and their translations."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from zoo.errors import CheckpointError
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD, TextCodec
from zoo.tasks.translation.batch import Pair, TranslationBatch
from zoo.text import Words

LANGUAGE = TextCodec.from_counts(Words(), Counter())


def test_a_decoder_reads_each_target_one_step_later() -> None:
    targets = Targets.pad([[7, 8], [9]])
    assert targets.tokens.tolist() == [[7, 8, END], [9, END, PAD]]
    assert targets.read.tolist() == [[BEGIN, 7, 8], [BEGIN, 9, END]]
    assert targets.is_real.tolist() == [[True, True, True], [True, True, False]]
    assert targets.lengths.tolist() == [3, 2]


def test_pairs_are_padded_and_keep_their_gold() -> None:
    batch = TranslationBatch.collate(
        [Pair([4, 5, 6], [7, 8], "a", links=[(0, 1), (0, 2)]), Pair([4], [9], "b", "test", links=[])],
        LANGUAGE,
    )
    assert batch.source.tokens.tolist() == [[4, 5, 6], [4, PAD, PAD]]
    assert batch.source.support.permitted is not None
    assert batch.source.support.permitted[:, 0, 0].tolist() == [[True, True, True], [True, False, False]]
    assert batch.gold is not None
    assert batch.gold.nonzero().tolist() == [[0, 0, 1], [0, 0, 2]]
    assert batch.splits == ("", "test")


def test_a_translation_that_is_not_known_leaves_the_targets_out() -> None:
    batch = TranslationBatch.collate([Pair([4], [7], "a", links=[(0, 0)]), Pair([5], None, "b")], LANGUAGE)
    assert batch.targets is None
    assert batch.gold is None
    assert len(batch) == 2


def test_some_texts_lose_the_padding_of_the_others() -> None:
    source = Source.pad([[4, 5, 6], [4], [4, 5]])
    some = source.select(torch.tensor([2, 1]))
    assert some.tokens.tolist() == [[4, 5], [4, PAD]]
    assert some.lengths.tolist() == [2, 1]
    assert source.select(torch.tensor([], dtype=torch.long)).tokens.shape == (0, 0)


def test_a_batch_moves_as_a_whole() -> None:
    moved = TranslationBatch.collate([Pair([4, 5], [7], "a")], LANGUAGE).to("meta")
    assert moved.source.tokens.is_meta
    assert moved.targets is not None
    assert moved.targets.lengths.is_meta


def test_a_language_returns_from_its_state() -> None:
    language = TextCodec.from_counts(Words(), Counter({"two": 2, "one": 1}))
    tokens, numbers = language.encode("one two three")
    assert numbers == [5, 4, 1]
    assert tokens.words == [0, 1, 2]
    again = TextCodec.from_state(language.tokeniser.state(), language.vocabulary.state())
    assert again.text([BEGIN, 5, 4, END]) == "one two"


def test_a_vocabulary_without_its_special_tokens_is_damaged() -> None:
    with pytest.raises(CheckpointError, match="special tokens"):
        TextCodec.from_state(Words().state(), ["<pad>", "<unk>", "one"])
