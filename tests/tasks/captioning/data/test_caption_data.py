"""From pictures and captions to batches: an example for each caption in training, one for each picture otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import DataError
from zoo.tasks.batching import BatchOptions
from zoo.tasks.captioning import CaptionData
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.captioning.datamodule import CaptionSource
from zoo.tasks.seq2seq.text_codec import UNKNOWN
from zoo.tasks.vision.batch import Picture
from zoo.tasks.vision.data.transforms import Augmentation, Preprocessing
from zoo.validation import validate

CAPTIONS = [["A dog runs", "one dog"], ["a cat", "the cat sleeps here"], ["a bird"], ["a dog and a fish", "fish"]]


def captioned(**changes: Any) -> CaptionSet:
    pixels = [torch.full((3, 4 + n, 6), 10 * n, dtype=torch.uint8) for n in range(4)]
    splits = np.array([TRAIN, TRAIN, VAL, TEST])
    return CaptionSet(pixels, CAPTIONS, [f"p{n}" for n in range(4)], splits, **changes)


def caption_data(found: CaptionSet | None = None, **options: Any) -> CaptionData:
    read = captioned() if found is None else found
    size = {"height": 4, "width": 4} | options
    return CaptionData(CaptionSource(lambda: read), BatchOptions(max_epochs=1, batch_size=8), **size)


def test_training_has_an_example_for_each_caption_and_evaluation_one_for_each_picture() -> None:
    data = caption_data()
    (batch,) = data.train_dataloader()
    texts = {data.language.text(each) for each in batch.targets.texts()}
    assert sorted(batch.ids) == ["p0", "p0", "p1", "p1"]
    assert texts == {"a dog runs", "one dog", "a cat", "the cat sleeps here"}
    assert data.train_size() == 4
    assert batch.written is None
    (test,) = data.loader("test")
    assert test.ids == ("p3",)
    assert test.splits == ("test",)
    assert test.references == [CAPTIONS[3]]
    assert test.written[0].size == (7, 6)
    assert test.source.pixels.shape == (1, 3, 4, 4)
    (every,) = data.loader("all")
    assert len(every) == 4


def test_words_are_learned_from_training_captions_alone() -> None:
    data = caption_data()
    names = data.language.vocabulary.tokens[4:]
    assert set(names) == {"a", "dog", "runs", "one", "cat", "the", "sleeps", "here"}
    (test,) = data.loader("test")
    assert [number == UNKNOWN for number in test.targets.texts()[0]] == [False, False, True, False, True]
    assert data.sizes() == {"tokens": 12, "height": 4, "width": 4}


def test_long_training_captions_are_left_out_and_counted() -> None:
    data = caption_data(max_length=3)
    with pytest.warns(UserWarning, match="1 of 4 captions are left out by data.max_length=3"):
        assert data.train_size() == 3


def test_bucketed_batches_have_captions_of_similar_length() -> None:
    captions = [[" ".join(["dog"] * (1 + number % 15)) for number in range(first, first + 5)] for first in range(12)]
    pixels = [torch.zeros(3, 4, 4, dtype=torch.uint8)] * 12
    found = CaptionSet(pixels, captions, [f"p{n}" for n in range(12)], np.full(12, TRAIN))
    spread = {}
    for bucketed in (True, False):
        data = caption_data(found, bucketed=bucketed)
        lengths = [batch.targets.lengths for batch in data.train_dataloader()]
        assert sum(map(len, lengths)) == 60
        spread[bucketed] = sum(int(each.max() - each.min()) for each in lengths)
    assert spread[True] * 2 < spread[False]


def test_regions_become_boxes_of_tokens_in_what_the_net_sees() -> None:
    boxes = np.array([[0, 0, 0, 0], [0, 0, 4, 3], [2, 3, 4, 6]], dtype=np.float32)
    regions = [boxes, *[np.zeros((len(texts[0].split()), 4), dtype=np.float32) for texts in CAPTIONS[1:]]]
    data = caption_data(captioned(regions=regions), resize="squash")
    (every,) = data.loader("all")
    assert every.gold[0, :3].tolist() == [[0, 0, 0, 0], [0, 0, 1, 0.5], [0.5, 0.5, 1, 1]]
    assert not every.gold[0, 3:].any()


@pytest.mark.parametrize("resize", ["crop", "squash", "pad"])
def test_shares_of_what_is_seen_are_where_preprocessing_puts_a_box(resize: Any) -> None:
    """A mark in a picture, and the same mark in what the net sees of it."""
    size, mark = (40, 60), np.array([[12, 24, 20, 40]], dtype=np.float32)
    pixels = torch.zeros(3, *size, dtype=torch.uint8)
    pixels[:, 12:20, 24:40] = 255
    preprocessing = Preprocessing(channels=3, height=50, width=50, mean=(0.0,) * 3, std=(1.0,) * 3, resize=resize)
    seen = preprocessing(Picture(pixels, -1, "a", "")).pixels[0] > 127
    rows, columns = seen.any(1).nonzero().flatten(), seen.any(0).nonzero().flatten()
    (found,) = preprocessing.shares(mark, *size) * 50
    expected = [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]
    np.testing.assert_allclose(found, expected, atol=1.01)


def test_a_checkpoint_has_language_and_preprocessing() -> None:
    data = caption_data(mean=[0.1, 0.2, 0.3])
    state = data.state()
    validate(state, data.form, "data")
    other = caption_data()
    other.restore(state)
    assert other.language.vocabulary.tokens == data.language.vocabulary.tokens
    assert other.preprocessing == data.preprocessing


def test_pictures_that_are_augmented_can_be_compared_with_all_of_their_captions() -> None:
    """As self-critical training does."""
    data = caption_data(references=True, augmentation=Augmentation(flip=True))
    (batch,) = data.train_dataloader()
    number = batch.ids.index("p1")
    assert batch.references[number] == CAPTIONS[1]
    assert batch.written[number].original.seen == (0.0, 0.0, 5.0, 6.0)
    assert batch.source.pixels.shape == (4, 3, 4, 4)


def test_own_pictures_have_no_captions(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 12, 3), 100, dtype=np.uint8)).save(tmp_path / "a.png")
    data = caption_data()
    own = data.from_files([tmp_path], data.state())
    (batch,) = own.loader("all")
    assert batch.ids == (str(tmp_path / "a.png"),)
    assert batch.splits == ("",)
    assert batch.targets is None
    assert batch.written[0].size == (8, 12)
    assert batch.written[0].original.read().pixels.shape == (3, 8, 12)
    assert batch.written[0].original.seen == (0.0, 2.0, 8.0, 8.0)


def test_damaged_pictures_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    data = caption_data()
    with pytest.raises(DataError, match=r"a\.png"):
        data.from_files([tmp_path], data.state()).setup()
