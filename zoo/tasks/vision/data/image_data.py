"""Pictures as the trainer takes them: read when asked for, brought to one size, in training changed at random."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int

from zoo.attention.ranges import Count, Natural, Positive, PositiveShare, Share
from zoo.data.loader import Loader
from zoo.errors import ConfigError
from zoo.forms import COUNT, Where
from zoo.tasks.contract import TaskData
from zoo.tasks.vision.batch import Images, Picture, collate
from zoo.tasks.vision.data.dataset import PictureSet
from zoo.tasks.vision.data.files import read_pictures_at
from zoo.tasks.vision.data.listing import Reading
from zoo.tasks.vision.data.transforms import Augmentation, Preprocessing, Resize

Vocabulary = Sequence[str]
Reader = Callable[[Vocabulary | None], PictureSet]
"""Labels of a trained model, or None -> pictures."""


class ImageData(TaskData):
    """Batches of pictures of one size.

    Args:
        read: Where the pictures come from.
        max_epochs: Passes over the training split at most.
        batch_size: Pictures a training step, over all processes.
        eval_batch_size: Pictures a step of evaluation; None: as in training.
        eval_examples: At most so many pictures of the training split in the evaluation at the end; None: all.
        num_workers: Processes that read and change pictures; 0: this one.
        augmentation: What is changed at random in training pictures; None: nothing.
        mean: Of each channel over the training split, of pixels between 0 and 1.
        std: Likewise.
        height: Pixels that the net sees; None: those of the pictures, if all have one size.
        width: Likewise.
        resize: How pictures of another size are brought to it (`zoo.tasks.vision.data.transforms.Preprocessing`).
        share: With resize=crop, the part of the picture's shorter side that is kept.
        at_least: A JPEG is decoded at 1/2, 1/4 or 1/8 of its size as long as both sides keep so many pixels, for
            predictions too. None: in full.
    """

    def __init__(
        self,
        read: Reader,
        *,
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
        share: PositiveShare = 1.0,
        at_least: Count | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("batch_size", batch_size), ("eval_batch_size", eval_batch_size)):
            if size is not None and size < 1:
                raise ConfigError(f"data.{name}={size}: write a whole number from 1")
        self.read = read
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.eval_batch_size = batch_size if eval_batch_size is None else eval_batch_size
        self.eval_examples = eval_examples
        self.num_workers = num_workers
        self.augmentation = augmentation
        self.mean = tuple(mean)
        self.std = tuple(std)
        self.height = height
        self.width = width
        self.resize: Resize = resize
        self.share = share
        self.at_least = at_least
        self.pictures: PictureSet | None = None
        self._labels: Vocabulary | None = None

    def setup(self, stage: str | None = None) -> None:
        if self.pictures is not None:
            return
        pictures = self.read(self._labels)
        if pictures.size is None and (self.height is None or self.width is None):
            raise ConfigError("these pictures have no size in common; give data.height and data.width")
        height, width = pictures.size or (0, 0)
        self.preprocessing = Preprocessing(
            channels=pictures.channels,
            height=height if self.height is None else self.height,
            width=width if self.width is None else self.width,
            mean=self.mean,
            std=self.std,
            resize=self.resize,
            share=self.share,
        )
        self.pictures = pictures

    def sizes(self) -> dict[str, int]:
        """What the model must know of the data."""
        pictures = self._ready()
        seen = self.preprocessing
        return {
            "channels": seen.channels,
            "height": seen.height,
            "width": seen.width,
            "classes": len(pictures.label_names),
        }

    def train_size(self) -> int:
        """Examples an epoch: the pictures of the training split."""
        return len(self._ready().numbers("train"))

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
        """Labels and preprocessing, for a checkpoint; `restore` takes them back."""
        pictures = self._ready()
        seen = self.preprocessing
        return {
            "labels": list(pictures.label_names),
            "channels": seen.channels,
            "height": seen.height,
            "width": seen.width,
            "mean": list(seen.mean),
            "std": list(seen.std),
            "resize": seen.resize,
            "share": seen.share,
            "at_least": self.at_least,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Reads the data with a checkpoint's labels and preprocessing instead of its own."""
        self._labels = state["labels"]
        self.height, self.width = state["height"], state["width"]
        self.mean, self.std = tuple(state["mean"]), tuple(state["std"])
        self.resize, self.share = state["resize"], state["share"]
        self.pictures = None

    def for_input(self, paths: Sequence[Path], state: dict[str, Any]) -> ImageData:
        """The user's own pictures, files, folders and tables of them, for a model trained on this data."""
        reading = Reading(channels=state["channels"], at_least=state["at_least"], on_bad_row=self.on_bad_row)
        data = ImageData(
            partial(_read_given, paths, reading),
            max_epochs=0,
            batch_size=self.eval_batch_size,
            num_workers=self.num_workers,
            mean=state["mean"],
            std=state["std"],
            at_least=state["at_least"],
        )
        data.restore(state)
        return data

    def loader(self, split: str) -> Loader:
        """The pictures of one split in their order, not augmented; `all` for every picture."""
        return Loader(
            self._examples(split, prepared=True),
            collate=self._collate(),
            batch_size=self.eval_batch_size,
            num_workers=self.num_workers,
        )

    def train_dataloader(self) -> Loader:
        augmentation = self.augmentation
        examples = self._examples("train", prepared=augmentation is None)
        return Loader(
            examples,
            collate=self._collate(),
            batch_size=self.batch_size,
            shuffle=True,
            seed=self.order_seed,
            augment=None if augmentation is None else partial(augmentation, to=self.preprocessing),
            num_workers=self.num_workers,
            even=True,
        )

    def transfer_batch_to_device(self, batch: Images, device: torch.device, dataloader_idx: int) -> Images:
        return batch if batch.pixels.device == device else batch.to(device)

    def _examples(self, split: str, *, prepared: bool) -> _Examples:
        pictures = self._ready()
        return _Examples(pictures, pictures.numbers(split), self.preprocessing if prepared else None)

    def _collate(self) -> Callable[[list[Picture]], Images]:
        return partial(collate, mean=self.mean, std=self.std, label_names=self._ready().label_names)

    def _ready(self) -> PictureSet:
        self.setup()
        assert self.pictures is not None
        return self.pictures


class _Examples(Sequence[Picture]):
    """Some pictures of a set, by number."""

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


def _read_given(paths: Sequence[Path], reading: Reading, labels: Vocabulary | None) -> PictureSet:
    assert labels is not None
    return read_pictures_at(paths, reading, labels=labels)
