"""Data sets of pictures: pixels are read on access, brought to one size, and augmented for training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from zoo.data.loader import Loader
from zoo.data.splits import NONE, SPLITS
from zoo.tasks.base import TaskData
from zoo.tasks.batching import BatchOptions, Examples
from zoo.tasks.command_options import FOLDER, MOST_PIXELS, CommandOption, replace_given
from zoo.tasks.data_summary import Summary, count_labels, count_splits
from zoo.tasks.vision.batch import Picture, collate
from zoo.tasks.vision.data.image_list import ReaderOptions
from zoo.tasks.vision.data.image_options import (
    MOST_INPUT,
    MOST_INPUT_PIXELS,
    PREPROCESSING,
    ImageOptions,
    check_input_pixels,
    preprocessing_state,
)
from zoo.tasks.vision.data.image_set import ImageSet
from zoo.tasks.vision.data.readers import read_pictures_at
from zoo.tasks.vision.data.transforms import Augmentation, Preprocessing, Resize
from zoo.types import Fraction, PositiveFloat, PositiveFraction, PositiveInt, validate_ranges
from zoo.validation import COUNT, Predicate


@dataclass(frozen=True)
class PictureSource:
    """The source of pictures.

    Args:
        read: `(reading, labels) -> ImageSet` for the user's own pictures, where `labels` are those of a trained model
            or None; `() -> ImageSet` if `reading` is None.
        reading: How the user's own pictures are read. Default: for published and generated sets, which have labels of
            their own.
    """

    read: Callable[..., ImageSet]
    reading: ReaderOptions | None = None


@validate_ranges
class ImageData(TaskData):
    """Batches of pictures of one size.

    Args:
        source: Source of the pictures.
        batching: Options of batches.
        augmentation: Random changes of training pictures. Default: none.
        mean: Mean of each channel over the training split, for pixels between 0 and 1. Default: ImageNet's.
        std: Standard deviation of each channel, likewise. Default: ImageNet's.
        height: Height of the net's input. Default: that of the pictures, if all have the same size.
        width: Width of the net's input. Default: that of the pictures, if all have the same size.
        resize: How pictures of other sizes are resized (`zoo.tasks.vision.data.transforms.Preprocessing`).
        share: Share of the shorter side that is kept if resize=crop.
    """

    input_options: ClassVar[Sequence[CommandOption]] = (FOLDER, MOST_PIXELS, MOST_INPUT)
    folder: Path | None = None
    """Where paths begin in the user's own tables for a trained model. Default: in the folder of the table."""
    most_pixels: int | None = None
    """Maximum number of pixels of a picture in them. Default: as in training."""
    most_input_pixels: int = MOST_INPUT_PIXELS
    """Largest size to which the net of a checkpoint may have pictures resized."""

    source: PictureSource

    def __init__(
        self,
        source: PictureSource,
        batching: BatchOptions,
        *,
        augmentation: Augmentation | None = None,
        mean: Sequence[Fraction] | None = None,
        std: Sequence[PositiveFloat] | None = None,
        height: PositiveInt | None = None,
        width: PositiveInt | None = None,
        resize: Resize = "crop",
        share: PositiveFraction = 1.0,
    ) -> None:
        super().__init__(source, batching)
        self.augmentation = augmentation
        self.options = ImageOptions(mean, std, height, width, resize, share)

    @property
    def min_side(self) -> int | None:
        """The smallest size of a side to which a JPEG may be reduced (by 2, 4 or 8) in decoding; None: no reduction."""
        if self.trained is not None:
            found: int | None = self.trained["at_least"]
            return found
        if self.source.reading is None:
            return None
        cut = self.augmentation.resized_crop if self.augmentation is not None else None
        return self.options.min_side(math.sqrt(cut[0]) if cut is not None else 1.0)

    def read(self) -> ImageSet:
        read, reading = self.source.read, self.source.reading
        if reading is None:
            pictures = read()
        else:
            labels = None if self.trained is None else self.trained["labels"]
            fit = self.options.fit(reading.channels)
            pictures = read(reading=replace(reading, at_least=self.min_side, fit=fit), labels=labels)
        self.preprocessing = self.options.make_preprocessing(pictures.channels, pictures.size)
        return pictures

    @property
    def pictures(self) -> ImageSet:
        """The pictures that were read."""
        pictures: ImageSet = self.content
        return pictures

    def names(self, content: ImageSet) -> dict[str, Sequence[str]]:
        return {"labels": content.label_names}

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        return {**{name: state[name] for name in ("channels", "height", "width")}, "classes": len(state["labels"])}

    def split_numbers(self) -> Int[np.ndarray, " n"]:
        """Returns the split of each picture as a number of `zoo.data.splits`."""
        splits = np.full(len(self.pictures), NONE)
        for number, name in enumerate(SPLITS):
            splits[self.pictures.splits == name] = number
        return splits

    def summary(self) -> Summary:
        pictures, splits = self.pictures, self.split_numbers()
        return Summary(
            noun="picture",
            sizes=count_splits(splits),
            spare=int((splits == NONE).sum()),
            labels=count_labels(pictures.label_names, np.asarray(pictures.labels), splits),
        )

    form: ClassVar[Mapping[str, Any]] = {
        "labels": [str],
        "channels": Predicate("1 or 3", lambda value: type(value) is int and value in (1, 3)),
        **PREPROCESSING,
        "at_least": (COUNT, None),
    }

    def state(self) -> dict[str, Any]:
        """Returns label names and preprocessing, for the checkpoint."""
        names, seen = super().state(), self.preprocessing
        return {**names, "channels": seen.channels, **preprocessing_state(seen), "at_least": self.min_side}

    def check_input_sizes(self, state: Mapping[str, Any]) -> None:
        check_input_pixels(state, self.most_input_pixels)

    def restore(self, state: dict[str, Any]) -> None:
        """Makes the data use the labels and preprocessing of a checkpoint instead of its own."""
        super().restore(state)
        self.options = ImageOptions.from_state(state)

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> PictureSource:
        """Returns the source of the user's own pictures: files, folders and tables."""
        trained = self.source.reading or ReaderOptions()
        given = {"on_bad_row": self.on_bad_row, "encoding": self.encoding, "most_pixels": self.most_pixels}
        reading = replace_given(trained, channels=state["channels"], **given)
        return PictureSource(partial(read_pictures_at, paths, folder=self.folder, unknown=self.unknown_labels), reading)

    @property
    def mapped_split(self) -> str:
        """The split whose maps are written: `test`, or `all` if there are no training and validation pictures."""
        return "test" if {"train", "val"} & set(self.pictures.splits.tolist()) else "all"

    def prediction_loader(self, split: str) -> Loader:
        return self._make_ordered_loader(self.examples(split, labelled=False))

    def examples(self, split: str, *, training: bool = False, labelled: bool = True) -> Examples:
        """Returns the pictures of a split, augmented for training.

        Args:
            split: Name of the split.
            training: Whether the pictures are augmented.
            labelled: Whether pictures of a split without a label are left out; those of `all` are not.
        """
        pictures, seen = self.pictures, self.preprocessing
        numbers = pictures.numbers(split)
        if labelled and split != "all":
            numbers = numbers[pictures.labels[numbers] >= 0]
        augmentation = self.augmentation if training else None
        return Examples(
            entries=_Prepared(pictures, numbers, seen if augmentation is None else None),
            collate=partial(collate, mean=seen.mean, std=seen.std, label_names=pictures.label_names),
            augment=None if augmentation is None else partial(augmentation, to=seen),
        )


class _Prepared(Sequence[Picture]):
    """Some pictures of a set, preprocessed on access if `preprocessing` is given."""

    def __init__(self, pictures: ImageSet, numbers: Int[np.ndarray, " k"], preprocessing: Preprocessing | None) -> None:
        self.pictures = pictures
        self.chosen = numbers.tolist()
        self.preprocessing = preprocessing

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, number: Any) -> Any:
        picture = self.pictures[self.chosen[number]]
        return picture if self.preprocessing is None else self.preprocessing(picture)
