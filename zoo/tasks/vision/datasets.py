"""Data sets of pictures that a configuration can name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from zoo.data.download import search_folders
from zoo.data.encodings import UTF8, Encoding
from zoo.data.tables import OnBadRow
from zoo.tasks.dataset_registry import dataset
from zoo.tasks.vision.data.image_io import MOST_PIXELS, Channels
from zoo.tasks.vision.data.image_list import ReaderOptions
from zoo.tasks.vision.data.image_set import ImageSet
from zoo.tasks.vision.data.imagenet import read_imagenet
from zoo.tasks.vision.data.published import read_published
from zoo.tasks.vision.data.readers import read_image_folder, read_image_table
from zoo.tasks.vision.datamodule import ImageData, PictureSource
from zoo.tasks.vision.synthetic import plant
from zoo.types import PositiveInt, Seed, validate_ranges


@dataset(ImageData, generator=plant)
def planted_glimpse(generate: Callable[[], ImageSet]) -> PictureSource:
    """Generated pictures of many digits; a cue elsewhere in the picture selects the one that is the label."""
    return PictureSource(generate)


@dataset(ImageData)
@validate_ranges
def published(
    *,
    name: Literal["fashion_mnist", "cifar10", "cifar100"],
    root: str,
    cache: str | None = None,
    validation: PositiveInt,
) -> PictureSource:
    """Fashion-MNIST, CIFAR-10 or CIFAR-100 with the official test set."""
    folders = search_folders(root, cache)
    return PictureSource(partial(read_published, name, folders, validation=validation))


@dataset(ImageData)
@validate_ranges
def imagenet(*, root: str, validation: PositiveInt) -> PictureSource:
    """ImageNet-1k in <root>/imagenet: train/<wnid>/*.JPEG and val/<wnid>/*.JPEG."""
    return PictureSource(partial(read_imagenet, Path(root) / "imagenet", validation=validation))


@dataset(ImageData)
@validate_ranges
def image_folder(
    *,
    folder: str,
    channels: Channels = 3,
    on_bad_row: OnBadRow = "error",
    most_pixels: PositiveInt = MOST_PIXELS,
    split_seed: Seed = 0,
) -> PictureSource:
    """The user's own pictures, in a folder for each class; see data/README.md."""
    reading = ReaderOptions(channels=channels, on_bad_row=on_bad_row, most_pixels=most_pixels)
    return PictureSource(partial(read_image_folder, Path(folder), split_seed=split_seed), reading)


@dataset(ImageData)
@validate_ranges
def image_table(
    *,
    table: str,
    channels: Channels = 3,
    on_bad_row: OnBadRow = "error",
    encoding: Encoding = UTF8,
    most_pixels: PositiveInt = MOST_PIXELS,
    split_seed: Seed = 0,
) -> PictureSource:
    """The user's own pictures, in a table of paths and labels; see data/README.md."""
    reading = ReaderOptions(channels=channels, on_bad_row=on_bad_row, encoding=encoding, most_pixels=most_pixels)
    return PictureSource(partial(read_image_table, Path(table), split_seed=split_seed), reading)
