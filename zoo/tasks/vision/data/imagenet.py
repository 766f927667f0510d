"""Reads ImageNet-1k (ILSVRC 2012) from folders of JPEGs; it cannot be downloaded without an account.

The official validation set is the test split, because the labels of the official test set are not public; published
accuracies use it as well. Validation pictures are taken from the training set.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from zoo.errors import DataError
from zoo.tasks.vision.data.image_io import SUFFIXES
from zoo.tasks.vision.data.image_list import Decoded, ReaderOptions
from zoo.tasks.vision.data.image_set import ImageSet
from zoo.tasks.vision.data.published import split_off_validation

_CLASSES = 1000


def read_imagenet(root: Path, *, validation: int) -> ImageSet:
    """Reads `train/<wnid>/*.JPEG` and `val/<wnid>/*.JPEG`, of all classes or of some.

    Args:
        root: The folder that holds train and val.
        validation: Number of training pictures that are used for validation.
    """
    for part in ("train", "val"):
        if not (root / part).is_dir():
            raise DataError(
                f"{root / part}: there is no such folder. ImageNet cannot be downloaded without an account: get "
                "ILSVRC2012 from image-net.org and unpack it to train/<wnid>/*.JPEG and val/<wnid>/*.JPEG in "
                f"{root}, or set $ZOO_DATA or paths.data to the folder that holds it."
            )
    synsets = _folders(root / "train")
    strange = sorted(set(synsets) ^ set(_folders(root / "val")))
    if strange or len(synsets) < 2:
        raise DataError(
            f"{root}: train and val do not have the same folders of classes, two or more (such as: "
            f"{', '.join(strange[:3]) or 'none'}). Sort the pictures of val into folders of their classes, too."
        )
    train, of_train = _files(root, "train", synsets)
    test, of_test = _files(root, "val", synsets)
    ids = train + test
    return ImageSet(
        pixels=Decoded(ids, ReaderOptions(), root),
        labels=np.concatenate([of_train, of_test]),
        splits=np.concatenate([split_off_validation(of_train, validation), np.full(len(test), "test")]),
        label_names=_names(synsets),
        ids=ids,
        channels=3,
    )


def _folders(path: Path) -> list[str]:
    return sorted(each.name for each in os.scandir(path) if each.is_dir() and not each.name.startswith("."))


def _files(root: Path, part: str, synsets: list[str]) -> tuple[list[str], np.ndarray]:
    """Returns paths relative to the root, class by class, and the index of each one's class."""
    names, labels = [], []
    for label, synset in enumerate(synsets):
        inside = sorted(each for each in os.listdir(root / part / synset) if Path(each).suffix.lower() in SUFFIXES)
        if not inside:
            raise DataError(f"{root / part / synset}: the folder holds no picture. Complete it, or remove the class.")
        names += [f"{part}/{synset}/{each}" for each in inside]
        labels += [label] * len(inside)
    return names, np.array(labels, dtype=np.int64)


def _names(synsets: list[str]) -> tuple[str, ...]:
    """Returns torchvision's names of the thousand classes, which match its weights; for a subset, the wnids."""
    if len(synsets) != _CLASSES:
        return tuple(synsets)
    from torchvision.models import ResNet18_Weights

    return tuple(ResNet18_Weights.IMAGENET1K_V1.meta["categories"])
