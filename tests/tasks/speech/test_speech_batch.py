"""Batches of recordings and what was said in them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch

from zoo.tasks.seq2seq.text_codec import END, PAD, TextCodec
from zoo.tasks.speech.batch import Frames, SpeechBatch, Utterance, WrittenUtterance
from zoo.text import Words

LANGUAGE = TextCodec.from_counts(Words(), Counter())


def frames(count: int, first: float = 1.0) -> np.ndarray:
    return np.arange(first, first + 2 * count, dtype=np.float32).reshape(count, 2)


def batch() -> SpeechBatch[Any]:
    return SpeechBatch.collate(
        [
            Utterance(frames(3), [7, 8], "a", "test", np.array([[0, 1], [1, 3]]), WrittenUtterance(["x"], "jo", 5.0)),
            Utterance(frames(1), [9], "b", "test", np.array([[0, 0]]), WrittenUtterance(["y"])),
        ],
        LANGUAGE,
    )


def test_recordings_are_padded_with_zeros() -> None:
    source = batch().source
    assert source.lengths.tolist() == [3, 1]
    assert source.features[0].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert source.features[1].tolist() == [[1, 2], [0, 0], [0, 0]]
    assert source.is_real.tolist() == [[True, True, True], [True, False, False]]
    assert source.support.permitted is not None
    assert source.support.permitted[:, 0, 0].tolist() == source.is_real.tolist()


def test_gold_is_the_first_frame_and_the_one_after_the_last_and_nothing_at_the_end() -> None:
    gold = batch().gold
    assert gold is not None
    assert gold.tolist() == [[[0, 1], [1, 3], [0, 0]], [[0, 0], [0, 0], [0, 0]]]


def test_gold_by_the_places_of_an_encoder() -> None:
    one = batch().gold_places(1, 3)
    two = batch().gold_places(2, 2)
    assert one is not None
    assert two is not None
    assert one[0].tolist() == [[True, False, False], [False, True, True], [False, False, False]]
    assert two[0].tolist() == [[True, False], [True, True], [False, False]]
    assert not two[1].any()


def test_an_empty_span_inside_of_a_place_has_no_place() -> None:
    found = SpeechBatch.collate([Utterance(frames(4), [7], "a", spans=np.array([[1, 1]]))], LANGUAGE).gold_places(4, 1)
    assert found is not None
    assert not found.any()


def test_some_utterances_lose_the_padding_of_the_others() -> None:
    some = batch().select([1])
    assert some.ids == ("b",)
    assert some.source.features.shape == (1, 1, 2)
    assert some.targets is not None
    assert some.targets.tokens.tolist() == [[9, END]]
    assert some.gold is not None
    assert some.gold.shape == (1, 2, 2)
    assert some.written == (WrittenUtterance(["y"]),)


def test_what_one_utterance_lacks_the_batch_lacks() -> None:
    known = Utterance(frames(1), [7], "a", spans=np.array([[0, 1]]))
    unknown = SpeechBatch.collate([known, Utterance(frames(2), None, "b")], LANGUAGE)
    assert unknown.targets is None
    assert unknown.gold is None
    assert unknown.gold_places(1, 2) is None
    assert unknown.written is None
    assert unknown.select([0]).targets is None


def test_other_targets_have_no_gold() -> None:
    made = batch()
    targets = made.select([1, 0]).targets
    assert targets is not None
    assert targets.tokens.tolist() == [[9, END, PAD], [7, 8, END]]
    assert made.replace_targets(targets).gold is None


def test_a_batch_moves_as_a_whole() -> None:
    moved = batch().to("meta")
    assert moved.source.features.is_meta
    assert moved.gold is not None
    assert moved.gold.is_meta


def test_no_recordings() -> None:
    assert Frames.pad([]).features.shape == (0, 0, 0)
    assert Frames.pad([frames(2)]).select(torch.tensor([], dtype=torch.long)).features.shape[:2] == (0, 0)
