"""Reads Fashion-MNIST and CIFAR from their published files.

The official test set is the test split. Validation pictures are drawn from the training set with the same share of
every class; the draw does not depend on the seed of a run. Files are checked by their sizes, shapes, counts and labels.
"""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from zoo.data.compressed import open_bytes
from zoo.data.download import find_published, verify_published
from zoo.data.restricted_pickle import SavedArray, unpickle
from zoo.errors import ConfigError, DataError
from zoo.tasks.vision.data.image_set import ImageSet

_DRAW = 0


@dataclass(frozen=True)
class Idx:
    """A data set in MNIST's format: `<part>-images-idx3-ubyte` and `<part>-labels-idx1-ubyte`, plain or with .gz.

    Args:
        folder: Its folder within the folder of data sets.
        source: URL of the files.
        label_names: Name of each class.
        train: Number of training pictures.
        test: Number of test pictures.
        side: Height and width of a picture.
        sha256: File name -> hash of the published file.
    """

    folder: str
    source: str
    label_names: tuple[str, ...]
    train: int
    test: int
    side: int
    sha256: Mapping[str, str]


@dataclass(frozen=True)
class Cifar:
    """A data set in CIFAR's format: a folder of pickles, or its archive.

    Args:
        folder: Its folder within the folder of data sets.
        source: URL of the folder that holds the archive.
        archive: File name of the archive.
        sha256: Hash of the archive.
        train: Training file -> number of pictures.
        test: Test file -> number of pictures.
        meta: The file with the names of the classes.
        labels: Key of the labels.
        names: Key of the class names.
        classes: Number of classes.
    """

    folder: str
    source: str
    archive: str
    sha256: str
    train: Mapping[str, int]
    test: Mapping[str, int]
    meta: str
    labels: str
    names: str
    classes: int


FASHION_MNIST = Idx(
    folder="FashionMNIST/raw",
    source="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    label_names=(
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    train=60_000,
    test=10_000,
    side=28,
    sha256={
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
)  # fmt: skip
CIFAR10 = Cifar(
    folder="cifar-10-batches-py",
    source="https://www.cs.toronto.edu/~kriz",
    archive="cifar-10-python.tar.gz",
    sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    train={f"data_batch_{number}": 10_000 for number in range(1, 6)},
    test={"test_batch": 10_000},
    meta="batches.meta",
    labels="labels",
    names="label_names",
    classes=10,
)
CIFAR100 = Cifar(
    folder="cifar-100-python",
    source="https://www.cs.toronto.edu/~kriz",
    archive="cifar-100-python.tar.gz",
    sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    train={"train": 50_000},
    test={"test": 10_000},
    meta="meta",
    labels="fine_labels",
    names="fine_label_names",
    classes=100,
)
SETS: dict[str, Idx | Cifar] = {"fashion_mnist": FASHION_MNIST, "cifar10": CIFAR10, "cifar100": CIFAR100}
_CIFAR_SIDE = 32
_LARGEST_MEMBER = 1 << 28  # bytes; CIFAR-100's training file has 155 million


def read_published(name: str, roots: Sequence[Path], *, validation: int) -> ImageSet:
    """Reads a data set of `SETS`; see `read_idx` and `read_cifar`."""
    chosen = SETS[name]
    if isinstance(chosen, Idx):
        return read_idx(chosen, roots, validation=validation)
    return read_cifar(chosen, roots, validation=validation)


def read_idx(published: Idx, roots: Sequence[Path], *, validation: int) -> ImageSet:
    """Reads a data set in MNIST's format; downloads missing files.

    Args:
        published: The data set.
        roots: Folders of data sets, searched in order; downloads go to the first that is writable.
        validation: Number of training pictures that are used for validation.
    """
    side, classes = published.side, len(published.label_names)
    paths = _idx_files(published, roots)
    pixels, labels = [], []
    for part, count in (("train", published.train), ("t10k", published.test)):
        pixels.append(_idx(paths[f"{part}-images-idx3-ubyte"], (count, side, side)))
        path = paths[f"{part}-labels-idx1-ubyte"]
        labels.append(_idx(path, (count,)).astype(np.int64))
        _check_labels(labels[-1], classes, path)
    return _as_set(np.concatenate(pixels)[:, None], labels[0], labels[1], published.label_names, validation)


def read_cifar(published: Cifar, roots: Sequence[Path], *, validation: int) -> ImageSet:
    """Reads CIFAR-10 or CIFAR-100 from its folder or its archive, which is downloaded if both are missing.

    Args:
        published: The data set.
        roots: Folders of data sets, searched in order; downloads go to the first that is writable.
        validation: Number of training pictures that are used for validation.
    """
    counts = {**published.train, **published.test}
    pickles = _cifar_pickles(published, roots)
    path, meta = pickles[published.meta]
    names = meta.get(published.names) if isinstance(meta, dict) else None
    names = names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []
    verify_published(
        len(names) == len(set(names)) == published.classes, path, f"it does not name {published.classes} classes"
    )
    parts = {name: _cifar_part(*pickles[name], count, published) for name, count in counts.items()}
    labels = [np.concatenate([parts[name][1] for name in part]) for part in (published.train, published.test)]
    return _as_set(np.concatenate([parts[name][0] for name in counts]), labels[0], labels[1], tuple(names), validation)


def split_off_validation(labels: Int[np.ndarray, " n"], validation: int) -> np.ndarray:
    """Assigns train or val to each example of a training set, with the same share of val in every class.

    Args:
        labels: Index of each example's class.
        validation: Number of val examples.
    """
    if not 0 < validation < len(labels):
        raise ConfigError(
            f"data.validation={validation}: write a number of pictures from 1 to {len(labels) - 1}; they are taken "
            "from the training set, and the best weights are chosen by them"
        )
    splits = np.full(len(labels), "train")
    order = np.random.default_rng(_DRAW).permutation(len(labels))
    taken = 0
    for each in np.unique(labels):
        upto = round(validation * int((labels <= each).sum()) / len(labels))
        splits[order[labels[order] == each][: upto - taken]] = "val"
        taken = upto
    return splits


def _as_set(
    pixels: UInt8[np.ndarray, "n c h w"],
    train: Int[np.ndarray, " k"],
    test: Int[np.ndarray, " l"],
    label_names: tuple[str, ...],
    validation: int,
) -> ImageSet:
    """Makes a set of the training pictures, followed by the test pictures."""
    _, channels, height, width = pixels.shape
    return ImageSet(
        pixels=pixels,
        labels=np.concatenate([train, test]),
        splits=np.concatenate([split_off_validation(train, validation), np.full(len(test), "test")]),
        label_names=label_names,
        ids=[f"train/{n}" for n in range(len(train))] + [f"test/{n}" for n in range(len(test))],
        channels=channels,
        size=(height, width),
    )


def _check_labels(labels: Int[np.ndarray, " n"], classes: int, path: Path) -> None:
    fits = labels.min() >= 0 and labels.max() < classes
    verify_published(fits, path, f"its labels go from {labels.min()} to {labels.max()}, not from 0 to {classes - 1}")
    found = len(np.unique(labels))
    verify_published(found == classes, path, f"it has pictures of {found} classes, not of {classes}")


def _idx_files(published: Idx, roots: Sequence[Path]) -> dict[str, Path]:
    """Returns the files by their names without .gz; those in neither form are downloaded."""
    folders = [root / published.folder for root in roots]
    names = [name.removesuffix(".gz") for name in published.sha256]
    plain = {name: folder / name for folder in reversed(folders) for name in names if (folder / name).is_file()}
    others = [f"{name}.gz" for name in names if name not in plain]
    found, _ = find_published(others, folders, source=published.source, sha256=published.sha256)
    return plain | {name.removesuffix(".gz"): path for name, path in found.items()}


def _idx(path: Path, shape: tuple[int, ...]) -> UInt8[np.ndarray, "..."]:
    """Reads MNIST's format (LeCun): 0, 0, 8 for bytes, the number of axes, the size of each axis, the bytes."""
    count = int(np.prod(shape))
    with open_bytes(path) as file:
        head = file.read(4 + 4 * len(shape))
        verify_published(
            head[:4] == bytes([0, 0, 8, len(shape)]), path, f"it begins with {head[:4].hex(' ') or 'nothing'}"
        )
        verify_published(len(head) == 4 + 4 * len(shape), path, "it ends within its header")
        declared = struct.unpack(f">{len(shape)}I", head[4:])
        verify_published(declared == shape, path, f"its header says {_times(declared)}, not {_times(shape)}")
        content = file.read(count + 1)
    more = "more" if len(content) > count else f"{len(content):,}"
    verify_published(len(content) == count, path, f"{more} bytes follow its header, not {count:,}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _times(shape: Sequence[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape)


def _cifar_pickles(published: Cifar, roots: Sequence[Path]) -> dict[str, tuple[Path, Any]]:
    """Returns the path and the content of each file."""
    names = [*published.train, *published.test, published.meta]
    for folder in (root / published.folder for root in roots):
        if folder.is_dir():
            lacking = [name for name in names if not (folder / name).is_file()]
            if lacking:
                raise DataError(f"{folder}: there is no {', '.join(lacking)}. Complete the folder, or remove it.")
            return {name: (folder / name, _unpickle(folder / name)) for name in names}
    digests = {published.archive: published.sha256}
    found, _ = find_published([published.archive], roots, source=published.source, sha256=digests)
    return _from_archive(found[published.archive], published.folder, names)


def _unpickle(path: Path) -> Any:
    with path.open("rb") as file:
        return unpickle(file, path)


def _from_archive(path: Path, folder: str, names: Sequence[str]) -> dict[str, tuple[Path, Any]]:
    """Reads files in an archive, without unpacking it to the disk."""
    wanted, found = {f"{folder}/{name}": name for name in names}, {}
    with open_bytes(path) as file, _explain_reading(path), tarfile.open(fileobj=file, mode="r|") as archive:
        for member in archive:
            name = wanted.get(member.name.removeprefix("./"))
            if name is None or not member.isfile():
                continue
            verify_published(member.size <= _LARGEST_MEMBER, path, f"{member.name} has {member.size:,} bytes")
            content = archive.extractfile(member)
            assert content is not None
            found[name] = path / member.name, unpickle(io.BytesIO(content.read()), path / member.name)
    lacking = [name for name in names if name not in found]
    verify_published(not lacking, path, f"there is no {', '.join(lacking)} in it")
    return found


@contextmanager
def _explain_reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{path}: the archive is damaged or cut short ({error}). Remove it.") from error


def _cifar_part(
    path: Path, content: Any, count: int, published: Cifar
) -> tuple[UInt8[np.ndarray, "n 3 32 32"], Int[np.ndarray, " n"]]:
    """Returns the pictures and labels of a file, which has a row for each picture: its red, green and blue planes."""
    saved = content.get("data") if isinstance(content, dict) else None
    data: np.ndarray = saved.array if isinstance(saved, SavedArray) else np.empty(0)
    width = 3 * _CIFAR_SIDE**2
    fits = data.dtype == np.uint8 and data.shape == (count, width)
    verify_published(
        fits, path, f"it holds {_times(data.shape)} numbers of type {data.dtype}, not {count:,} x {width:,} bytes"
    )
    labels = content.get(published.labels)
    are_numbers = isinstance(labels, list) and all(type(label) is int for label in labels)
    verify_published(
        are_numbers and len(labels) == count, path, f"it does not hold {count:,} labels under {published.labels!r}"
    )
    numbers = np.array(labels, dtype=np.int64)
    _check_labels(numbers, published.classes, path)
    return data.reshape(count, 3, _CIFAR_SIDE, _CIFAR_SIDE), numbers
