"""The data sets that can be named in a configuration; their options are its schema."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from zoo.attention.ranges import Count, Natural, Positive, PositiveShare, Seed, Share
from zoo.data.tables import OnBadRow
from zoo.errors import DataError
from zoo.tasks.vision.data.dataset import PictureSet
from zoo.tasks.vision.data.files import read_image_folder, read_image_table
from zoo.tasks.vision.data.image_data import ImageData, Vocabulary
from zoo.tasks.vision.data.imagenet import read_imagenet
from zoo.tasks.vision.data.listing import Reading
from zoo.tasks.vision.data.picture import MOST_PIXELS, Channels
from zoo.tasks.vision.data.planted import Cue, plant
from zoo.tasks.vision.data.published import read_published
from zoo.tasks.vision.data.transforms import Augmentation, Resize

_IMAGENET_MEAN = {3: (0.485, 0.456, 0.406), 1: (0.459,)}
_IMAGENET_STD = {3: (0.229, 0.224, 0.225), 1: (0.226,)}
"""Of the training pictures; in grey by the weights 0.299, 0.587 and 0.114."""


def planted_glimpse(
    *,
    seed: Seed = 0,
    train: Count = 10_000,
    val: Count = 1_000,
    test: Count = 1_000,
    rows: Count = 4,
    columns: Count = 4,
    margin: Natural = 0,
    colours: Count = 16,
    noise: Annotated[int, ">= 0", "<= 255"] = 16,
    cue: Cue = "frame",
    max_epochs: Count,
    batch_size: Count,
    eval_batch_size: Count | None = None,
    eval_examples: Count | None = None,
    num_workers: Natural = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[Share],
    std: Sequence[Positive],
) -> ImageData:
    """Generated pictures of many digits, of which a cue elsewhere in the picture means one: see `planted.plant`."""
    planted = partial(
        plant,
        seed=seed,
        train=train,
        val=val,
        test=test,
        rows=rows,
        columns=columns,
        margin=margin,
        colours=colours,
        noise=noise,
        cue=cue,
    )
    return ImageData(
        partial(_with_own_names, planted),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        eval_examples=eval_examples,
        num_workers=num_workers,
        augmentation=augmentation,
        mean=mean,
        std=std,
    )


def published(
    *,
    name: Literal["fashion_mnist", "cifar10", "cifar100"],
    root: str,
    cache: str | None = None,
    validation: Count,
    max_epochs: Count,
    batch_size: Count,
    eval_batch_size: Count | None = None,
    eval_examples: Count | None = None,
    num_workers: Natural = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[Share],
    std: Sequence[Positive],
    height: Count | None = None,
    width: Count | None = None,
) -> ImageData:
    """A set of small pictures with its official test set: see `published.SETS`."""
    return ImageData(
        partial(_with_own_names, partial(read_published, name, _folders(root, cache), validation=validation)),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        eval_examples=eval_examples,
        num_workers=num_workers,
        augmentation=augmentation,
        mean=mean,
        std=std,
        height=height,
        width=width,
    )


def imagenet(
    *,
    root: str,
    validation: Count,
    max_epochs: Count,
    batch_size: Count,
    eval_batch_size: Count | None = None,
    eval_examples: Count | None = None,
    num_workers: Natural = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[Share],
    std: Sequence[Positive],
    height: Count | None = None,
    width: Count | None = None,
    resize: Resize = "crop",
    share: PositiveShare = 0.875,
) -> ImageData:
    """ImageNet-1k in <root>/imagenet: train/<wnid>/*.JPEG and val/<wnid>/*.JPEG."""
    published = partial(read_imagenet, Path(root) / "imagenet", validation=validation)
    return ImageData(
        partial(_with_own_names, published),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        eval_examples=eval_examples,
        num_workers=num_workers,
        augmentation=augmentation,
        mean=mean,
        std=std,
        height=height,
        width=width,
        resize=resize,
        share=share,
    )


def image_folder(
    *,
    folder: str,
    channels: Channels = 3,
    on_bad_row: OnBadRow = "error",
    most_pixels: Count = MOST_PIXELS,
    split_seed: Seed = 0,
    height: Count,
    width: Count,
    resize: Resize = "crop",
    share: PositiveShare = 1.0,
    max_epochs: Count,
    batch_size: Count,
    eval_batch_size: Count | None = None,
    eval_examples: Count | None = None,
    num_workers: Natural = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[Share] | None = None,
    std: Sequence[Positive] | None = None,
) -> ImageData:
    """The user's own pictures, a folder a class: see data/README.md. Without mean and std ImageNet's are taken."""
    return _own(
        partial(read_image_folder, Path(folder), split_seed=split_seed),
        channels=channels,
        on_bad_row=on_bad_row,
        most_pixels=most_pixels,
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        eval_examples=eval_examples,
        num_workers=num_workers,
        augmentation=augmentation,
        mean=mean,
        std=std,
        height=height,
        width=width,
        resize=resize,
        share=share,
    )


def image_table(
    *,
    table: str,
    channels: Channels = 3,
    on_bad_row: OnBadRow = "error",
    most_pixels: Count = MOST_PIXELS,
    split_seed: Seed = 0,
    height: Count,
    width: Count,
    resize: Resize = "crop",
    share: PositiveShare = 1.0,
    max_epochs: Count,
    batch_size: Count,
    eval_batch_size: Count | None = None,
    eval_examples: Count | None = None,
    num_workers: Natural = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[Share] | None = None,
    std: Sequence[Positive] | None = None,
) -> ImageData:
    """The user's own pictures, a table of their paths and labels: see data/README.md."""
    return _own(
        partial(read_image_table, Path(table), split_seed=split_seed),
        channels=channels,
        on_bad_row=on_bad_row,
        most_pixels=most_pixels,
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        eval_examples=eval_examples,
        num_workers=num_workers,
        augmentation=augmentation,
        mean=mean,
        std=std,
        height=height,
        width=width,
        resize=resize,
        share=share,
    )


def _own(
    read: Callable[..., PictureSet],
    *,
    channels: Channels,
    on_bad_row: OnBadRow,
    most_pixels: int,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    height: int,
    width: int,
    share: float,
    augmentation: Augmentation | None,
    **loading: Any,
) -> ImageData:
    """The user's own pictures, which `read` finds."""
    at_least = _side(height, width, share, augmentation)
    reading = Reading(channels=channels, at_least=at_least, on_bad_row=on_bad_row, most_pixels=most_pixels)
    return ImageData(
        partial(_read_own, read, reading),
        mean=mean if mean is not None else _IMAGENET_MEAN[channels],
        std=std if std is not None else _IMAGENET_STD[channels],
        height=height,
        width=width,
        share=share,
        augmentation=augmentation,
        at_least=at_least,
        **loading,
    )


def _read_own(read: Callable[..., PictureSet], reading: Reading, labels: Vocabulary | None) -> PictureSet:
    return read(reading=reading, labels=labels)


def _side(height: int, width: int, share: float, augmentation: Augmentation | None) -> int:
    """Twice the size at which the net sees the picture, or the smallest part that is cut out of it."""
    cut = augmentation.resized_crop if augmentation is not None else None
    narrowest = min(share, math.sqrt(cut[0]) if cut is not None else 1.0)
    return math.ceil(2 * max(height, width) / max(narrowest, 0.01))


def _folders(root: str, cache: str | None) -> list[Path]:
    return [Path(root)] if cache is None else [Path(root), Path(cache)]


def _with_own_names(read: Callable[[], PictureSet], labels: Vocabulary | None) -> PictureSet:
    """A set with names of its own can serve a trained model only if they are the model's."""
    pictures = read()
    if labels is not None and list(labels) != list(pictures.label_names):
        raise DataError(
            f"the model was trained on other labels than this data has ({len(labels)} against "
            f"{len(pictures.label_names)}); fine-tune it on this data with init=CHECKPOINT"
        )
    return pictures
