"""Batches of pictures and captions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from zoo.nn.images.image_input import ImageInput, OriginalImage
from zoo.tasks.captioning.batch import CaptionBatch, CaptionExample, WrittenPicture
from zoo.tasks.seq2seq.text_codec import END, TextCodec
from zoo.text import Words

LANGUAGE = TextCodec.from_counts(Words(), Counter())
NO_PIXELS = np.zeros((1, 3, 4, 6), dtype=np.uint8)


def pixels(value: int) -> torch.Tensor:
    return torch.full((3, 4, 6), value, dtype=torch.uint8)


def written(references: list[str], size: tuple[int, int]) -> WrittenPicture:
    return WrittenPicture(references, size, OriginalImage(NO_PIXELS, 0, (0.0, 0.0, *map(float, size))))


def batch() -> CaptionBatch[Any]:
    boxes = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]])
    return CaptionBatch.collate(
        [
            CaptionExample(pixels(255), None, [7, 8], "a", "test", boxes, written(["x", "y"], (4, 6))),
            CaptionExample(pixels(0), None, [9], "b", "test", boxes[1:], written(["z"], (8, 8))),
        ],
        LANGUAGE,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.25),
    )


def test_pixels_are_normalised_and_are_the_places() -> None:
    source = batch().source
    assert source.pixels is not None
    assert source.pixels[:, :, 0, 0].tolist() == [[1.0, 1.0, 2.0], [-1.0, -1.0, -2.0]]
    assert len(source) == 2
    assert source.lengths.tolist() == [24, 24]
    assert source.is_real.shape == (2, 24)
    assert source.is_real.all()


def test_features_come_with_their_grid() -> None:
    rows = torch.arange(12.0).view(6, 2)
    made = CaptionBatch.collate(
        [CaptionExample(None, rows.half(), None, "a"), CaptionExample(None, -rows.half(), None, "b")],
        LANGUAGE,
        grid=(2, 3),
    )
    assert made.source.pixels is None
    assert made.source.features is not None
    assert made.source.features.dtype == torch.float32
    assert made.source.lengths.tolist() == [6, 6]
    assert made.source.grid == (2, 3)
    some = made.select([1]).source
    assert some.features is not None
    assert torch.equal(some.features[0], -rows)
    assert some.grid == (2, 3)
    assert made.targets is None


def test_gold_by_cells_and_of_some_pictures() -> None:
    made = batch()
    cells = made.gold_cells((2, 2))
    assert cells is not None
    assert cells.shape == (2, 3, 4)
    assert cells.nonzero().tolist() == [[0, 0, 0]]
    some = made.select([1])
    assert some.ids == ("b",)
    assert some.targets is not None
    assert some.targets.tokens.tolist() == [[9, END]]
    assert some.gold is not None
    assert some.gold.shape == (1, 2, 4)
    assert some.references == [["z"]]
    assert made.replace_targets(some.targets).gold is None
    assert made.replace_targets(some.targets).gold_cells((2, 2)) is None


@pytest.mark.parametrize("what", ["target", "regions", "written"])
def test_what_one_picture_lacks_the_batch_lacks(what: str) -> None:
    whole = CaptionExample(pixels(1), None, [7], "a", "", torch.zeros(1, 4), written(["x"], (4, 6)))
    lacks = CaptionExample(pixels(1), None, *(None if what == "target" else [7], "b", ""), None, None)
    made = CaptionBatch.collate([whole, lacks], LANGUAGE)
    assert (made.targets is None) == (what == "target")
    assert made.gold is None
    assert made.written is None


def test_a_batch_moves_as_a_whole() -> None:
    moved = batch().to("meta")
    assert moved.source.pixels is not None
    assert moved.source.pixels.is_meta
    assert moved.gold is not None
    assert moved.gold.is_meta
    here = ImageInput(torch.zeros(1, 3, 2, 2))
    assert here.to("cpu") is here
