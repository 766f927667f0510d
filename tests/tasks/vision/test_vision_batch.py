"""Batches: contents, normalisation, and pictures that cannot be in one batch."""

import dataclasses

import numpy as np
import pytest
import torch

from zoo.errors import DataError
from zoo.tasks.vision.batch import ImageBatch, Picture, collate, normalize

MEAN, STD = (0.2, 0.5, 0.8), (0.1, 0.25, 0.5)


def picture(seed: int = 0, *, size: tuple[int, int] = (5, 7), gold: bool = False, channels: int = 3) -> Picture:
    random = np.random.default_rng(seed)
    return Picture(
        pixels=torch.from_numpy(random.integers(0, 256, (channels, *size), dtype=np.uint8)),
        label=seed % 3 - 1,
        id=f"picture {seed}",
        split="train",
        gold=torch.from_numpy(random.random(size) < 0.3) if gold else None,
    )


def batch(pictures: list[Picture]) -> ImageBatch:
    return collate(pictures, mean=MEAN, std=STD, label_names=("cat", "dog"))


def test_a_batch_holds_its_pictures_in_order() -> None:
    pictures = [picture(seed, gold=True) for seed in range(4)]
    made = batch(pictures)
    assert made.ids == ("picture 0", "picture 1", "picture 2", "picture 3")
    assert made.labels.tolist() == [-1, 0, 1, -1]
    assert made.splits == ("train",) * 4
    assert made.label_names == ("cat", "dog")
    for number, each in enumerate(pictures):
        assert torch.equal(made.gold[number], each.gold)
        for channel in range(3):
            expected = (each.pixels[channel].double() / 255 - MEAN[channel]) / STD[channel]
            torch.testing.assert_close(made.pixels[number, channel].double(), expected, rtol=1e-6, atol=1e-6)


def test_normalisation_can_be_undone_to_the_last_bit_of_a_pixel() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(2, 3, 1, 1)
    back = normalize(pixels, MEAN, STD) * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
    assert torch.equal((255 * back).round().to(torch.uint8), pixels)


def test_normalisation_leaves_the_pixels_alone() -> None:
    pixels = picture().pixels
    kept = pixels.clone()
    normalize(pixels[None], MEAN, STD)
    assert torch.equal(pixels, kept)


def test_a_picture_of_another_size_is_named() -> None:
    with pytest.raises(DataError, match=r"picture 1: the picture is 5 x 6 with 3 .*picture 0 .* 5 x 7 .*data\.height"):
        batch([picture(0), picture(1, size=(5, 6))])
    with pytest.raises(DataError, match="5 x 7 with 1 channel"):
        batch([picture(0), picture(1, channels=1)])


def test_gold_of_some_pictures_alone_is_refused() -> None:
    with pytest.raises(DataError, match="1 of the 2 pictures have gold"):
        batch([picture(0, gold=True), picture(1)])
    assert batch([picture(0), picture(1)]).gold is None


def test_a_batch_goes_to_a_device_and_takes_other_pixels() -> None:
    made = batch([picture(0, gold=True), picture(1, gold=True)])
    moved = made.to("meta")
    assert {moved.pixels.device.type, moved.labels.device.type, moved.gold.device.type} == {"meta"}
    assert moved.ids == made.ids
    changed = made.replace_pixels(made.pixels + 1)
    assert torch.equal(changed.pixels, made.pixels + 1)
    same = [field.name for field in dataclasses.fields(ImageBatch) if field.name != "pixels"]
    assert all(getattr(changed, name) is getattr(made, name) for name in same)
