"""Pictures as the trainer takes them: read when asked for, brought to one size, in training changed at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from zoo.data.loader import Loader
from zoo.data.tables import OnBadRow
from zoo.errors import ConfigError, DataError
from zoo.tasks.contract import TaskData
from zoo.tasks.vision.batch import Images, Picture, collate
from zoo.tasks.vision.dataset import PictureSet
from zoo.tasks.vision.files import read_image_folder, read_image_table, read_pictures_at
from zoo.tasks.vision.imagenet import read_imagenet
from zoo.tasks.vision.listing import Reading
from zoo.tasks.vision.picture import MOST_PIXELS, Channels
from zoo.tasks.vision.planted import Cue, plant
from zoo.tasks.vision.published import CIFAR10, CIFAR100, FASHION_MNIST, read_cifar, read_idx
from zoo.tasks.vision.transforms import Augmentation, Preprocessing, Resize

_IMAGENET_MEAN = {3: (0.485, 0.456, 0.406), 1: (0.459,)}
_IMAGENET_STD = {3: (0.229, 0.224, 0.225), 1: (0.226,)}
"""Of the training pictures; in grey by the weights 0.299, 0.587 and 0.114."""
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
        num_workers: Processes that read and change pictures; 0: this one.
        augmentation: What is changed at random in training pictures; None: nothing.
        mean: Of each channel over the training split, of pixels between 0 and 1.
        std: Likewise.
        height: Pixels that the net sees; None: those of the pictures, if all have one size.
        width: Likewise.
        resize: How pictures of another size are brought to it (`zoo.tasks.vision.transforms.Preprocessing`).
        share: With resize=crop, the part of the picture's shorter side that is kept.
        at_least: A JPEG is decoded at 1/2, 1/4 or 1/8 of its size as long as both sides keep so many pixels, for
            predictions too. None: in full.
    """

    def __init__(
        self,
        read: Reader,
        *,
        max_epochs: int,
        batch_size: int,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        augmentation: Augmentation | None = None,
        mean: Sequence[float],
        std: Sequence[float],
        height: int | None = None,
        width: int | None = None,
        resize: Resize = "crop",
        share: float = 1.0,
        at_least: int | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("batch_size", batch_size), ("eval_batch_size", eval_batch_size)):
            if size is not None and size < 1:
                raise ConfigError(f"data.{name}={size}: write a whole number from 1")
        self.read = read
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.eval_batch_size = batch_size if eval_batch_size is None else eval_batch_size
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
        reading = Reading(channels=state["channels"], at_least=state["at_least"])
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

    def val_dataloader(self) -> Loader:
        return self.loader("val")

    def test_dataloader(self) -> Loader:
        return self.loader("test")

    def predict_dataloader(self) -> Loader:
        return self.loader("all")

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


def planted_glimpse(
    *,
    seed: int = 0,
    train: int = 10_000,
    val: int = 1_000,
    test: int = 1_000,
    rows: int = 4,
    columns: int = 4,
    margin: int = 0,
    colours: int = 16,
    noise: int = 16,
    cue: Cue = "frame",
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    num_workers: int = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[float],
    std: Sequence[float],
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
        num_workers=num_workers,
        augmentation=augmentation,
        mean=mean,
        std=std,
    )


def fashion_mnist(
    *,
    root: str,
    cache: str | None = None,
    validation: int,
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    num_workers: int = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[float],
    std: Sequence[float],
    height: int | None = None,
    width: int | None = None,
) -> ImageData:
    """Fashion-MNIST: 60,000 and 10,000 grey pictures of 28 x 28, ten classes."""
    published = partial(read_idx, FASHION_MNIST, _folders(root, cache), validation=validation)
    return ImageData(
        partial(_with_own_names, published),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        num_workers=num_workers,
        augmentation=augmentation,
        mean=mean,
        std=std,
        height=height,
        width=width,
    )


def cifar10(
    *,
    root: str,
    cache: str | None = None,
    validation: int,
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    num_workers: int = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[float],
    std: Sequence[float],
    height: int | None = None,
    width: int | None = None,
) -> ImageData:
    """CIFAR-10: 50,000 and 10,000 colour pictures of 32 x 32, ten classes."""
    published = partial(read_cifar, CIFAR10, _folders(root, cache), validation=validation)
    return ImageData(
        partial(_with_own_names, published),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        num_workers=num_workers,
        augmentation=augmentation,
        mean=mean,
        std=std,
        height=height,
        width=width,
    )


def cifar100(
    *,
    root: str,
    cache: str | None = None,
    validation: int,
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    num_workers: int = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[float],
    std: Sequence[float],
    height: int | None = None,
    width: int | None = None,
) -> ImageData:
    """CIFAR-100: 50,000 and 10,000 colour pictures of 32 x 32, a hundred classes."""
    published = partial(read_cifar, CIFAR100, _folders(root, cache), validation=validation)
    return ImageData(
        partial(_with_own_names, published),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
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
    validation: int,
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    num_workers: int = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[float],
    std: Sequence[float],
    height: int | None = None,
    width: int | None = None,
    resize: Resize = "crop",
    share: float = 0.875,
) -> ImageData:
    """ImageNet-1k in <root>/imagenet: train/<wnid>/*.JPEG and val/<wnid>/*.JPEG."""
    published = partial(read_imagenet, Path(root) / "imagenet", validation=validation)
    return ImageData(
        partial(_with_own_names, published),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        num_workers=num_workers,
        augmentation=augmentation,
        mean=mean,
        std=std,
        height=height,
        width=width,
        resize=resize,
        share=share,
    )


def _folders(root: str, cache: str | None) -> list[Path]:
    return [Path(root)] if cache is None else [Path(root), Path(cache)]


def _read_given(paths: Sequence[Path], reading: Reading, labels: Vocabulary | None) -> PictureSet:
    assert labels is not None
    return read_pictures_at(paths, reading, labels=labels)


def image_folder(
    *,
    folder: str,
    channels: Channels = 3,
    on_bad_row: OnBadRow = "error",
    most_pixels: int = MOST_PIXELS,
    split_seed: int = 0,
    height: int,
    width: int,
    resize: Resize = "crop",
    share: float = 1.0,
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    num_workers: int = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> ImageData:
    """The user's own pictures, a folder a class: see data/README.md. Without mean and std ImageNet's are taken."""
    at_least = _side(height, width, share, augmentation)
    reading = Reading(channels=channels, at_least=at_least, on_bad_row=on_bad_row, most_pixels=most_pixels)
    return ImageData(
        partial(_read_own, read_image_folder, Path(folder), reading, split_seed),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        num_workers=num_workers,
        augmentation=augmentation,
        mean=mean if mean is not None else _IMAGENET_MEAN[channels],
        std=std if std is not None else _IMAGENET_STD[channels],
        height=height,
        width=width,
        resize=resize,
        share=share,
        at_least=at_least,
    )


def image_table(
    *,
    table: str,
    channels: Channels = 3,
    on_bad_row: OnBadRow = "error",
    most_pixels: int = MOST_PIXELS,
    split_seed: int = 0,
    height: int,
    width: int,
    resize: Resize = "crop",
    share: float = 1.0,
    max_epochs: int,
    batch_size: int,
    eval_batch_size: int | None = None,
    num_workers: int = 0,
    augmentation: Augmentation | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> ImageData:
    """The user's own pictures, a table of their paths and labels: see data/README.md."""
    at_least = _side(height, width, share, augmentation)
    reading = Reading(channels=channels, at_least=at_least, on_bad_row=on_bad_row, most_pixels=most_pixels)
    return ImageData(
        partial(_read_own, read_image_table, Path(table), reading, split_seed),
        max_epochs=max_epochs,
        batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        num_workers=num_workers,
        augmentation=augmentation,
        mean=mean if mean is not None else _IMAGENET_MEAN[channels],
        std=std if std is not None else _IMAGENET_STD[channels],
        height=height,
        width=width,
        resize=resize,
        share=share,
        at_least=at_least,
    )


def _side(height: int, width: int, share: float, augmentation: Augmentation | None) -> int:
    """Twice the size at which the net sees the picture, or the smallest part that is cut out of it."""
    cut = augmentation.resized_crop if augmentation is not None else None
    narrowest = min(share, math.sqrt(cut[0]) if cut is not None else 1.0)
    return math.ceil(2 * max(height, width) / max(narrowest, 0.01))


def _read_own(
    read: Callable[..., PictureSet], path: Path, reading: Reading, split_seed: int, labels: Vocabulary | None
) -> PictureSet:
    return read(path, reading, split_seed=split_seed, labels=labels)


def _with_own_names(read: Callable[[], PictureSet], labels: Vocabulary | None) -> PictureSet:
    """A set with names of its own can serve a trained model only if they are the model's."""
    pictures = read()
    if labels is not None and list(labels) != list(pictures.label_names):
        raise DataError(
            f"the model was trained on other labels than this data has ({len(labels)} against "
            f"{len(pictures.label_names)}); fine-tune it on this data with init=CHECKPOINT"
        )
    return pictures
