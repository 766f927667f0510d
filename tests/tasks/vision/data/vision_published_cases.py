"""Generated files in the formats in which Fashion-MNIST, CIFAR and ImageNet are published."""

import gzip
import io
import pickle
import struct
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from zoo.tasks.vision.data.published import CIFAR10, CIFAR100, FASHION_MNIST, Cifar

SMALL_IDX = replace(FASHION_MNIST, train=200, test=40)
SMALL_CIFAR10 = replace(CIFAR10, train=dict.fromkeys(CIFAR10.train, 40), test={"test_batch": 30})
SMALL_CIFAR100 = replace(CIFAR100, train={"train": 400}, test={"test": 100})


class Python2Pickler(pickle._Pickler):
    """Pickles as Python 2 did: strings are bytes, and NumPy's modules have their former names."""

    def save_bytes(self, content: bytes) -> None:
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)
        self.memoize(content)

    def save_text(self, content: str) -> None:
        self.save_bytes(content.encode("latin1"))

    dispatch = pickle._Pickler.dispatch | {bytes: save_bytes, str: save_text}


def python2(value: object) -> bytes:
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def python3(value: object) -> bytes:
    return pickle.dumps(value, protocol=4)


def idx(values: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return head + values.astype(np.uint8).tobytes()


def publish_idx(root: Path, *, zipped: bool = True) -> dict[str, np.ndarray]:
    """Writes the four files; returns their contents by name."""
    draw = np.random.default_rng(0)
    folder = root / SMALL_IDX.folder
    folder.mkdir(parents=True)
    content = {}
    for part, count in (("train", SMALL_IDX.train), ("t10k", SMALL_IDX.test)):
        content[f"{part}-images-idx3-ubyte"] = draw.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        content[f"{part}-labels-idx1-ubyte"] = draw.permutation(np.arange(count) % 10).astype(np.uint8)
    for name, values in content.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(values), 1))
        else:
            (folder / name).write_bytes(idx(values))
    return content


def cifar_parts(published: Cifar, seed: int = 0) -> dict[str, dict[str, Any]]:
    """The contents of each file of a generated data set."""
    draw = np.random.default_rng(seed)
    parts: dict[str, dict[str, Any]] = {}
    for name, count in {**published.train, **published.test}.items():
        labels = draw.permutation(np.arange(count) % published.classes).tolist()
        parts[name] = {
            "batch_label": name,
            published.labels: labels,
            "data": draw.integers(0, 256, (count, 3072), dtype=np.uint8),
            "filenames": [f"{number}.png" for number in range(count)],
        }
    parts[published.meta] = {published.names: [f"kind {number}" for number in range(published.classes)]}
    return parts


def publish_cifar(root: Path, published: Cifar, dumps: Any = python2, **changed: bytes) -> dict[str, dict[str, Any]]:
    """Writes the folder of pickles, some of them replaced; returns their contents."""
    parts = cifar_parts(published)
    folder = root / published.folder
    folder.mkdir(parents=True)
    for name, value in parts.items():
        (folder / name).write_bytes(changed.get(name, dumps(value)))
    return parts


def publish_archive(root: Path, published: Cifar, **changed: bytes) -> dict[str, dict[str, Any]]:
    """Writes the archive, with a file beside those that are needed."""
    parts = cifar_parts(published)
    with tarfile.open(root / published.archive, "w:gz", compresslevel=1) as archive:
        for name, content in ({"readme.html": b"<html>"} | {n: python2(v) for n, v in parts.items()} | changed).items():
            member = tarfile.TarInfo(f"{published.folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return parts


def publish_imagenet(root: Path, *, classes: int = 3, train: int = 4, test: int = 2) -> None:
    draw = np.random.default_rng(0)
    for part, count in (("train", train), ("val", test)):
        for number in range(classes):
            folder = root / part / f"n0000{number}"
            folder.mkdir(parents=True)
            for each in range(count):
                pixels = draw.integers(0, 256, (20 + each, 30, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{folder.name}_{each}.JPEG")
