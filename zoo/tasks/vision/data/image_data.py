"""Pictures as the trainer takes them: read when asked for, brought to one size, in training changed at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from zoo.attention.ranges import Count, Positive, PositiveShare, Share
from zoo.errors import ConfigError
from zoo.forms import COUNT, Where
from zoo.tasks.batches import Batching, Examples
from zoo.tasks.contract import TaskData
from zoo.tasks.vision.batch import Picture, collate
from zoo.tasks.vision.data.dataset import PictureSet
from zoo.tasks.vision.data.files import read_pictures_at
from zoo.tasks.vision.data.listing import Reading
from zoo.tasks.vision.data.transforms import Augmentation, Preprocessing, Resize

_IMAGENET_MEAN = {3: (0.485, 0.456, 0.406), 1: (0.459,)}
_IMAGENET_STD = {3: (0.229, 0.224, 0.225), 1: (0.226,)}
"""Of the training pictures; in grey by the weights 0.299, 0.587 and 0.114."""


@dataclass(frozen=True)
class PictureSource:
    """Where pictures come from.

    Args:
        read: Reads them. With `reading` it takes `reading` and `labels`, those of a trained model or None.
        reading: How the user's own pictures are read; None: those of a published or generated set, which are read in
            full and have labels of their own.
    """

    read: Callable[..., PictureSet]
    reading: Reading | None = None


class ImageData(TaskData):
    """Batches of pictures of one size.

    Args:
        source: Where the pictures come from.
        batching: How they become batches.
        augmentation: What is changed at random in training pictures; None: nothing.
        mean: Of each channel over the training split, of pixels between 0 and 1; None: ImageNet's.
        std: Likewise.
        height: Pixels that the net sees; None: those of the pictures, if all have one size.
        width: Likewise.
        resize: How pictures of another size are brought to it (`zoo.tasks.vision.data.transforms.Preprocessing`).
        share: With resize=crop, the part of the picture's shorter side that is kept.
    """

    source: PictureSource

    def __init__(
        self,
        source: PictureSource,
        batching: Batching,
        *,
        augmentation: Augmentation | None = None,
        mean: Sequence[Share] | None = None,
        std: Sequence[Positive] | None = None,
        height: Count | None = None,
        width: Count | None = None,
        resize: Resize = "crop",
        share: PositiveShare = 1.0,
    ) -> None:
        super().__init__(source, batching)
        self.augmentation = augmentation
        self.mean = mean
        self.std = std
        self.height = height
        self.width = width
        self.resize: Resize = resize
        self.share = share

    @property
    def at_least(self) -> int | None:
        """A JPEG is decoded at 1/2, 1/4 or 1/8 of its size as long as both sides keep so many pixels; None: in full.

        It is twice the size at which the net sees the picture, or the smallest part that is cut out of it.
        """
        if self.trained is not None:
            found: int | None = self.trained["at_least"]
            return found
        if self.source.reading is None or self.height is None or self.width is None:
            return None
        cut = self.augmentation.resized_crop if self.augmentation is not None else None
        narrowest = min(self.share, math.sqrt(cut[0]) if cut is not None else 1.0)
        return math.ceil(2 * max(self.height, self.width) / max(narrowest, 0.01))

    def read(self) -> PictureSet:
        read, reading = self.source.read, self.source.reading
        if reading is None:
            pictures = read()
        else:
            labels = None if self.trained is None else self.trained["labels"]
            pictures = read(reading=replace(reading, at_least=self.at_least), labels=labels)
        if pictures.size is None and (self.height is None or self.width is None):
            raise ConfigError("these pictures have no size in common; give data.height and data.width")
        height, width = pictures.size or (0, 0)
        self.preprocessing = Preprocessing(
            channels=pictures.channels,
            height=height if self.height is None else self.height,
            width=width if self.width is None else self.width,
            mean=tuple(_IMAGENET_MEAN[pictures.channels] if self.mean is None else self.mean),
            std=tuple(_IMAGENET_STD[pictures.channels] if self.std is None else self.std),
            resize=self.resize,
            share=self.share,
        )
        return pictures

    @property
    def pictures(self) -> PictureSet:
        """What was read."""
        pictures: PictureSet = self.content
        return pictures

    def names(self, content: PictureSet) -> dict[str, Sequence[str]]:
        return {"labels": content.label_names}

    def sizes(self) -> dict[str, int]:
        """What the model must know of the data."""
        classes = len(self.pictures.label_names)
        seen = self.preprocessing
        return {"channels": seen.channels, "height": seen.height, "width": seen.width, "classes": classes}

    form: ClassVar[Mapping[str, Any]] = {
        "labels": [str],
        "channels": Where("1 or 3", lambda value: type(value) is int and value in (1, 3)),
        "height": COUNT,
        "width": COUNT,
        "mean": [float],
        "std": [float],
        "resize": str,
        "share": float,
        "at_least": (COUNT, None),
    }

    def state(self) -> dict[str, Any]:
        """Labels and preprocessing, for a checkpoint."""
        names, seen = super().state(), self.preprocessing
        lists = {"mean": list(seen.mean), "std": list(seen.std)}
        return {**names, **vars(seen), **lists, "at_least": self.at_least}

    def restore(self, state: dict[str, Any]) -> None:
        """Reads the data with a checkpoint's labels and preprocessing instead of its own."""
        super().restore(state)
        for name in ("height", "width", "mean", "std", "resize", "share"):
            setattr(self, name, state[name])

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> PictureSource:
        """The user's own pictures: files, folders and tables of them."""
        reading = Reading(channels=state["channels"], on_bad_row=self.on_bad_row)
        return PictureSource(partial(read_pictures_at, paths), reading)

    @property
    def mapped_split(self) -> str:
        """The user's own pictures may have splits, too: then their test split."""
        return "test" if {"train", "val"} & set(self.pictures.splits.tolist()) else "all"

    def examples(self, split: str, *, training: bool = False) -> Examples:
        """The pictures of a split in their order; in training they are augmented."""
        pictures, seen = self.pictures, self.preprocessing
        augmentation = self.augmentation if training else None
        return Examples(
            entries=_Prepared(pictures, pictures.numbers(split), seen if augmentation is None else None),
            collate=partial(collate, mean=seen.mean, std=seen.std, label_names=pictures.label_names),
            augment=None if augmentation is None else partial(augmentation, to=seen),
        )


class _Prepared(Sequence[Picture]):
    """Some pictures of a set, by number, as the net sees them or as they are."""

    def __init__(
        self, pictures: PictureSet, numbers: Int[np.ndarray, " k"], preprocessing: Preprocessing | None
    ) -> None:
        self.pictures = pictures
        self.chosen = numbers.tolist()
        self.preprocessing = preprocessing

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, number: Any) -> Any:
        picture = self.pictures[self.chosen[number]]
        return picture if self.preprocessing is None else self.preprocessing(picture)
