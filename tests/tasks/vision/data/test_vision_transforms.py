"""Preprocessing and augmentation: the same as torchvision's, and gold moves with the pixels."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

from zoo.data.loader import Loader
from zoo.errors import ConfigError, DataError
from zoo.tasks.vision.batch import Picture
from zoo.tasks.vision.data.transforms import Augmentation, Preprocessing


def seen(height: int, width: int, channels: int = 3, **options: Any) -> Preprocessing:
    mean, std = (0.5, 0.25, 0.75)[:channels], (0.25,) * channels
    return Preprocessing(channels=channels, height=height, width=width, mean=mean, std=std, **options)


def marked(height: int, width: int, channels: int = 3, seed: int = 0) -> Picture:
    """A picture whose gold is where its first channel is bright, so that the two can be compared."""
    draw = np.random.default_rng(seed)
    gold = np.zeros((height, width), dtype=bool)
    top, left = draw.integers(0, height // 2), draw.integers(0, width // 2)
    gold[top : top + height // 3, left : left + width // 3] = True
    pixels = draw.integers(20, 100, (channels, height, width), dtype=np.uint8)
    pixels[0] = np.where(gold, 255, 0)
    return Picture(torch.from_numpy(pixels), 0, "marked", "train", torch.from_numpy(gold))


@pytest.mark.parametrize("size", [(40, 64), (64, 40), (33, 33), (24, 90), (300, 500)])
def test_crop_is_torchvisions_resize_and_middle(size: tuple[int, int]) -> None:
    picture = marked(*size)
    expected = v2.Compose([v2.Resize(32, antialias=True), v2.CenterCrop(28)])(picture.pixels)
    found = seen(28, 28, share=0.875)(picture).pixels
    assert found.shape == (3, 28, 28)
    # the longer side may be rounded to another pixel than there, where it is cut off
    if size[0] * 32 % min(size) == 0 and size[1] * 32 % min(size) == 0:
        assert torch.equal(found, expected)
    assert (found.int() - expected.int()).abs().float().mean() < 20


def test_a_picture_of_the_size_is_left_as_it_is() -> None:
    picture = marked(28, 28)
    for resize in ("crop", "squash", "pad"):
        assert seen(28, 28, resize=resize)(picture) is picture


def test_share_also_cuts_a_picture_of_the_size() -> None:
    picture = marked(32, 32)
    found = seen(32, 32, share=0.5)(picture)
    assert found.pixels.shape == (3, 32, 32)
    expected = v2.CenterCrop(32)(v2.Resize(64, antialias=True)(picture.pixels))
    assert torch.equal(found.pixels, expected)


def test_squash_keeps_everything() -> None:
    picture = marked(30, 60)
    assert torch.equal(seen(20, 20, resize="squash")(picture).pixels, v2.Resize([20, 20])(picture.pixels))


def test_pad_fills_with_the_mean_and_keeps_proportions() -> None:
    picture = marked(30, 60)
    found = seen(20, 24, resize="pad")(picture)
    inside = v2.Resize([12, 24])(picture.pixels)
    assert torch.equal(found.pixels[:, 4:16], inside)
    rim = torch.cat([found.pixels[:, :4], found.pixels[:, 16:]], 1)
    assert torch.equal(rim, torch.tensor([128, 64, 191], dtype=torch.uint8)[:, None, None].expand(3, 8, 24))
    assert not found.gold[:4].any()
    assert not found.gold[16:].any()


@pytest.mark.parametrize("resize", ["crop", "squash", "pad"])
def test_gold_follows_the_pixels_to_the_size(resize: str) -> None:
    picture = marked(60, 96)
    found = seen(40, 40, resize=resize, share=0.9)(picture)
    assert found.gold.shape == (40, 40)
    assert found.gold.dtype == torch.bool
    bright = found.pixels[0] > (128 if resize != "pad" else 130)
    assert (bright != found.gold).float().mean() < 0.04
    assert found.gold.any()


@pytest.mark.parametrize("resize", ["crop", "squash", "pad"])
@pytest.mark.parametrize("size", [(60, 96), (96, 60), (20, 31)])
def test_the_part_that_is_seen_is_where_the_pixels_come_from(resize: str, size: tuple[int, int]) -> None:
    """The picture's channels hold the coordinates of its own pixels."""
    rows, columns = np.meshgrid(np.arange(size[0]), np.arange(size[1]), indexing="ij")
    pixels = torch.from_numpy(np.stack([rows, columns]).astype(np.uint8))
    to = Preprocessing(2, 40, 40, (0.0, 0.0), (1.0, 1.0), resize=resize, share=0.8)
    found = to(Picture(pixels, 0, "", "")).pixels
    top, left, height, width = to.find_crop(*size)
    for row, column in ((20, 20), (20, 15), (14, 20)):
        expected = (top + (row + 0.5) * height / 40 - 0.5, left + (column + 0.5) * width / 40 - 0.5)
        assert tuple(found[:, row, column].tolist()) == pytest.approx(expected, abs=1.01)


def test_a_crop_with_padding_draws_every_window_of_the_padded_picture_alike() -> None:
    picture = Picture(torch.arange(1, 26, dtype=torch.uint8).reshape(1, 5, 5), 0, "", "")
    padded = torch.nn.functional.pad(picture.pixels, (1, 1, 1, 1))
    windows = [padded[:, row : row + 5, column : column + 5] for row in range(3) for column in range(3)]
    random.seed(0)
    augmentation = Augmentation(crop_padding=1)
    drawn = [augmentation(picture, seen(5, 5, 1)).pixels for _ in range(900)]
    counts = Counter(next(n for n, window in enumerate(windows) if torch.equal(window, each)) for each in drawn)
    assert sum(counts.values()) == 900
    assert len(counts) == 9
    assert max(abs(count - 100) for count in counts.values()) < 40  # four standard deviations


def test_padding_wider_than_the_picture_may_leave_nothing_of_it() -> None:
    random.seed(0)
    picture = Picture(torch.full((1, 3, 3), 9, dtype=torch.uint8), 0, "", "")
    drawn = [Augmentation(crop_padding=5)(picture, seen(3, 3, 1)).pixels for _ in range(50)]
    assert any(not each.any() for each in drawn)
    assert all(each.shape == (1, 3, 3) for each in drawn)


def test_every_other_picture_is_mirrored() -> None:
    random.seed(0)
    picture = marked(6, 6)
    drawn = [Augmentation(flip=True)(picture, seen(6, 6)) for _ in range(400)]
    mirrored = sum(torch.equal(each.pixels, picture.pixels.flip(-1)) for each in drawn)
    assert mirrored + sum(torch.equal(each.pixels, picture.pixels) for each in drawn) == 400
    assert abs(mirrored - 200) < 40


@pytest.mark.parametrize(
    "options",
    [
        {"crop_padding": 6},
        {"flip": True},
        {"crop_padding": 6, "flip": True},
        {"resized_crop": [0.2, 1.0], "flip": True},
    ],
    ids=str,
)
def test_gold_follows_what_moves_pixels(options: dict[str, Any]) -> None:
    random.seed(0)
    torch.manual_seed(0)
    for seed in range(20):
        found = Augmentation(**options)(marked(36, 36, seed=seed), seen(36, 36))
        assert found.pixels.shape == (3, 36, 36)
        assert type(found.pixels) is type(found.gold) is torch.Tensor
        differ = ((found.pixels[0] > 127) != found.gold).float().mean()
        assert differ == 0 if "resized_crop" not in options else differ < 0.08


def test_gold_stays_where_only_colours_change() -> None:
    torch.manual_seed(0)
    picture = marked(24, 24)
    found = Augmentation(color_jitter=0.4, erasing=1.0)(picture, seen(24, 24))
    assert torch.equal(found.gold, picture.gold)
    assert not torch.equal(found.pixels, picture.pixels)


def test_rand_augment_is_refused_where_gold_would_stay_behind() -> None:
    picture = marked(24, 24)
    augmentation = Augmentation(rand_augment=2)
    with pytest.raises(ConfigError, match=r"rand_augment turns and shifts .*rand_augment=0"):
        augmentation(picture, seen(24, 24))
    torch.manual_seed(0)
    drawn = [augmentation(replace(picture, gold=None), seen(24, 24)).pixels for _ in range(20)]
    assert len({tuple(each.flatten().tolist()) for each in drawn}) > 10


def test_erasing_fills_a_rectangle_with_the_mean() -> None:
    torch.manual_seed(1)
    picture = replace(marked(24, 24), pixels=torch.zeros(3, 24, 24, dtype=torch.uint8))
    found = Augmentation(erasing=1.0)(picture, seen(24, 24)).pixels
    erased = found[0] != 0
    assert 0.02 <= erased.float().mean() <= 0.34
    rows, columns = erased.any(1), erased.any(0)
    assert torch.equal(erased, rows[:, None] & columns)
    assert found[:, erased].unique(dim=1).squeeze().tolist() == [128, 64, 191]


@pytest.mark.parametrize("channels", [1, 3])
def test_all_at_once_keeps_size_and_type(channels: int) -> None:
    everything = Augmentation(
        resized_crop=[0.3, 1.0], crop_padding=2, flip=True, rand_augment=2, magnitude=9, color_jitter=0.4, erasing=0.25
    )
    torch.manual_seed(0)
    for seed in range(10):
        picture = replace(marked(40, 52, channels, seed), gold=None)
        found = everything(picture, seen(32, 24, channels)).pixels
        assert found.shape == (channels, 32, 24)
        assert found.dtype == torch.uint8
        assert type(found) is torch.Tensor


def test_what_is_drawn_depends_on_seed_epoch_and_number_alone() -> None:
    pictures = [replace(marked(12, 12, seed=seed), gold=None) for seed in range(7)]
    everything = Augmentation(resized_crop=[0.3, 1.0], crop_padding=2, flip=True, rand_augment=1, erasing=0.5)

    def drawn(seed: int, epoch: int, **options: Any) -> dict[int, torch.Tensor]:
        loader = Loader(
            list(enumerate(pictures)),
            collate=list,
            augment=lambda each: (each[0], everything(each[1], seen(12, 12)).pixels),
            seed=seed,
            **options,
        )
        loader.set_epoch(epoch)
        return {number: pixels for batch in loader for number, pixels in batch}

    first = drawn(0, 3, batch_size=2, shuffle=True)
    for same in (drawn(0, 3, batch_size=7), drawn(0, 3, batch_size=3, shuffle=True)):
        assert all(torch.equal(first[number], same[number]) for number in range(7))
    for other in (drawn(0, 4, batch_size=2), drawn(1, 3, batch_size=2)):
        assert sum(torch.equal(first[number], other[number]) for number in range(7)) < 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop_padding": -1}, "crop_padding is to be a whole number of at least 0"),
        ({"rand_augment": -2}, "rand_augment is to be a whole number of at least 0"),
        ({"magnitude": 31}, "magnitude is to be a whole number of at least 0 and of at most 30"),
        ({"erasing": 1.5}, "erasing is to be a number of at least 0 and of at most 1"),
        ({"color_jitter": -0.1}, "color_jitter is to be a number of at least 0"),
        ({"resized_crop": [0.5]}, r"resized_crop=\[0\.5\]: write two shares"),
        ({"resized_crop": [0.9, 0.2]}, r"write two shares"),
        ({"resized_crop": [0.0, 1.0]}, "each a number above 0 and of at most 1"),
    ],
)
def test_a_bad_augmentation_says_what_is_right(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        Augmentation(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"height": 0}, "height is to be a whole number of at least 1"),
        ({"mean": (0.5,)}, r"data\.mean has 1 number.* 3 channels"),
        ({"std": (0.5, 0.5)}, r"data\.std has 2 numbers"),
        ({"std": (0.5, 0.0, 0.5)}, "std is to be a list, each a number above 0"),
        ({"share": 1.5}, "share is to be a number above 0 and of at most 1"),
    ],
)
def test_a_bad_size_says_what_is_right(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        replace(seen(4, 4), **options)


def test_a_picture_like_a_thread_is_named_and_not_blown_up() -> None:
    thread = Picture(torch.zeros(3, 1, 50_000, dtype=torch.uint8), 0, "thread.png", "")
    with pytest.raises(DataError, match=r"thread\.png: a picture of 1 x 50,000 is too long .* 224 x 224; .*resize=pad"):
        seen(224, 224)(thread)
    assert seen(224, 224, resize="pad")(thread).pixels.shape == (3, 224, 224)
