"""The data sets of pictures with captions that can be named in a configuration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from zoo.data.encodings import UTF8, Encoding
from zoo.data.tables import OnBadRow
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.captioning.data.published import read_coco, read_flickr8k
from zoo.tasks.captioning.data.readers import ReaderOptions, read_caption_table
from zoo.tasks.captioning.datamodule import CaptionData, CaptionSource
from zoo.tasks.captioning.synthetic import plant
from zoo.tasks.dataset_registry import dataset
from zoo.tasks.vision.data.image_io import MOST_PIXELS
from zoo.types import PositiveInt, Seed, validate_ranges


@dataset(CaptionData, generator=plant)
def planted_scenes(generate: Callable[[], CaptionSet]) -> CaptionSource:
    """Generated pictures of coloured shapes, and sentences that say what is in them: see `sentences.plant`."""
    return CaptionSource(generate)


@dataset(CaptionData)
def flickr8k(*, root: str) -> CaptionSource:
    """Flickr8k (Hodosh et al. 2013): 8,000 pictures with five captions each."""
    return CaptionSource(partial(read_flickr8k, Path(root)), ReaderOptions())


@dataset(CaptionData)
@validate_ranges
def coco(
    *, root: str, split: Literal["karpathy", "official"] = "karpathy", validation: PositiveInt = 5000
) -> CaptionSource:
    """COCO of 2014 (Chen et al. 2015): 123,287 pictures with five captions each."""
    return CaptionSource(partial(read_coco, Path(root), split=split, validation=validation), ReaderOptions())


@dataset(CaptionData)
@validate_ranges
def captions(
    *,
    table: str,
    folder: str | None = None,
    image: str = "image",
    caption: str = "caption",
    split: str = "split",
    on_bad_row: OnBadRow = "error",
    encoding: Encoding = UTF8,
    most_pixels: PositiveInt = MOST_PIXELS,
    split_seed: Seed = 0,
) -> CaptionSource:
    """The user's own pictures and captions, in a table with a row for each caption: see data/README.md."""
    read = partial(
        read_caption_table,
        Path(table),
        folder=None if folder is None else Path(folder),
        split_seed=split_seed,
    )
    reading = ReaderOptions(
        image=image, caption=caption, split=split, on_bad_row=on_bad_row, encoding=encoding, most_pixels=most_pixels
    )
    return CaptionSource(read, reading)
