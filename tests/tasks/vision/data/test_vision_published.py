"""Fashion-MNIST, CIFAR and ImageNet: generated files of the published format, damaged and hostile ones, real ones."""

import gzip
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from vision_published_cases import (
    SMALL_CIFAR10,
    SMALL_CIFAR100,
    SMALL_IDX,
    cifar_parts,
    idx,
    publish_archive,
    publish_cifar,
    publish_idx,
    publish_imagenet,
    python2,
    python3,
)

from zoo.data.download import restrict_downloads
from zoo.errors import ConfigError, DataError, OfflineError
from zoo.tasks.vision.data.imagenet import read_imagenet
from zoo.tasks.vision.data.published import CIFAR10, CIFAR100, FASHION_MNIST, read_cifar, read_idx, split_off_validation

DEAD = "http://127.0.0.1:9"


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files(tmp_path: Path, zipped: bool) -> None:
    truth = publish_idx(tmp_path, zipped=zipped)
    found = read_idx(SMALL_IDX, [tmp_path], validation=50)
    assert (len(found), found.channels, found.size) == (240, 1, (28, 28))
    assert found.label_names[0] == "T-shirt/top"
    assert found.label_names[9] == "Ankle boot"
    pixels = np.concatenate([truth["train-images-idx3-ubyte"], truth["t10k-images-idx3-ubyte"]])
    assert np.array_equal(found.pixels[:, 0], pixels)
    labels = np.concatenate([truth["train-labels-idx1-ubyte"], truth["t10k-labels-idx1-ubyte"]])
    assert found.labels.tolist() == labels.tolist()
    assert (found.splits[200:] == "test").all()
    assert {name: int((found.splits == name).sum()) for name in ("train", "val", "test")} == {
        "train": 150,
        "val": 50,
        "test": 40,
    }
    picture = found[203]
    assert (picture.id, picture.split, picture.label) == ("test/3", "test", labels[203])
    assert torch.equal(picture.pixels[0], torch.from_numpy(pixels[203]))
    assert found[17].id == "train/17"


def test_an_uncompressed_file_serves_beside_compressed_ones_and_in_any_folder(tmp_path: Path) -> None:
    truth = publish_idx(tmp_path / "a")
    packed = tmp_path / "a" / SMALL_IDX.folder / "train-images-idx3-ubyte.gz"
    packed.unlink()
    elsewhere = tmp_path / "b" / SMALL_IDX.folder
    elsewhere.mkdir(parents=True)
    (elsewhere / "train-images-idx3-ubyte").write_bytes(idx(truth["train-images-idx3-ubyte"]))
    found = read_idx(SMALL_IDX, [tmp_path / "a", tmp_path / "b"], validation=10)
    assert np.array_equal(found.pixels[:200, 0], truth["train-images-idx3-ubyte"])


def _other_head(content: bytes) -> bytes:
    return b"\x00\x00\x0d\x03" + content[4:]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train-images-idx3-ubyte", _other_head, r"train-images.*not the published file: it begins with 00 00 0d 03"),
        ("train-images-idx3-ubyte", lambda c: b"", "it begins with nothing"),
        ("t10k-labels-idx1-ubyte", lambda c: c[:6], "it ends within its header"),
        ("train-images-idx3-ubyte", lambda c: c[:-5], r"156,795 bytes follow its header, not 156,800"),
        ("train-images-idx3-ubyte", lambda c: c + b"x", r"more bytes follow its header, not 156,800"),
        ("t10k-images-idx3-ubyte", lambda c: c[:8] + bytes([0, 0, 0, 32]) + c[12:], r"40 x 32 x 28, not 40 x 28 x 28"),
        ("train-labels-idx1-ubyte", lambda c: c[:-1] + b"\x0a", r"labels go from 0 to 10, not from 0 to 9"),
        ("train-labels-idx1-ubyte", lambda c: c.replace(b"\x07", b"\x06"), r"pictures of 9 classes, not of 10"),
    ],
)
def test_another_file_is_said(tmp_path: Path, name: str, change: Any, message: str) -> None:
    publish_idx(tmp_path)
    path = tmp_path / SMALL_IDX.folder / f"{name}.gz"
    path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))
    with pytest.raises(DataError, match=message):
        read_idx(SMALL_IDX, [tmp_path], validation=50)


def test_a_compressed_file_that_is_cut_short_is_said(tmp_path: Path) -> None:
    publish_idx(tmp_path)
    path = tmp_path / SMALL_IDX.folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-4000])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: the compressed file is damaged or cut short"):
        read_idx(SMALL_IDX, [tmp_path], validation=50)


def test_without_network_the_message_says_which_files_belong_where(tmp_path: Path) -> None:
    publish_idx(tmp_path)
    (tmp_path / SMALL_IDX.folder / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(OfflineError, match=r"train-labels-idx1-ubyte\.gz is needed.*FashionMNIST/raw.*\$ZOO_DATA"):
        read_idx(replace(SMALL_IDX, source=DEAD), [tmp_path], validation=50)


def test_a_checkpoint_does_not_decide_where_downloads_go(tmp_path: Path) -> None:
    with restrict_downloads(tmp_path / "mine"), pytest.raises(OfflineError, match="does not decide where downloads go"):
        read_cifar(replace(SMALL_CIFAR10, source=DEAD), [tmp_path / "theirs"], validation=10)
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize(
    ("which", "write"),
    [
        (SMALL_CIFAR10, publish_cifar),
        (SMALL_CIFAR10, lambda root, which: publish_cifar(root, which, python3)),
        (SMALL_CIFAR100, publish_cifar),
        (SMALL_CIFAR10, publish_archive),
        (SMALL_CIFAR100, publish_archive),
    ],
    ids=["10", "10 by Python 3", "100", "10 in the archive", "100 in the archive"],
)
def test_cifar(tmp_path: Path, which: Any, write: Any) -> None:
    truth = write(tmp_path, which)
    found = read_cifar(which, [tmp_path], validation=100)
    parts = [truth[name] for name in (*which.train, *which.test)]
    rows = np.concatenate([part["data"] for part in parts])
    assert found.labels.tolist() == [label for part in parts for label in part[which.labels]]
    assert found.label_names == tuple(truth[which.meta][which.names])
    assert (found.channels, found.size) == (3, (32, 32))
    number = 57
    pixels = found[number].pixels
    for channel, row, column in ((0, 0, 0), (0, 0, 31), (1, 5, 7), (2, 31, 31)):  # red, green, blue; line by line
        assert pixels[channel, row, column] == rows[number, channel * 1024 + row * 32 + column]
    assert np.array_equal(found.pixels.reshape(len(rows), -1), rows)
    assert {name: int((found.splits == name).sum()) for name in ("train", "val", "test")} == {
        "train": sum(which.train.values()) - 100,
        "val": 100,
        "test": sum(which.test.values()),
    }


class Hostile:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


@pytest.mark.parametrize("write", [publish_cifar, publish_archive])
def test_a_hostile_pickle_runs_nothing(tmp_path: Path, write: Any) -> None:
    trace = tmp_path / "was here"
    hostile = pickle.dumps({"data": Hostile(trace), "labels": []}, protocol=2)
    write(tmp_path, SMALL_CIFAR10, test_batch=hostile)
    with pytest.raises(DataError, match=r"test_batch: the pickle was refused: it asks for posix\.system"):
        read_cifar(SMALL_CIFAR10, [tmp_path], validation=10)
    assert not trace.exists()


def changed(**changes: Any) -> bytes:
    return python2(cifar_parts(SMALL_CIFAR10)["data_batch_2"] | changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: changed(data=np.zeros((39, 3072), np.uint8)), r"39 x 3,072 numbers of type uint8, not 40 x 3,072"),
        (lambda: changed(data=np.zeros((40, 3072))), "of type float64"),
        (lambda: changed(data=np.array(["a"], dtype=object)), "it holds an array of 'O8'"),
        (lambda: changed(data=[1, 2]), "it holds 0 numbers"),
        (lambda: changed(labels=[0] * 39), "it does not hold 40 labels under 'labels'"),
        (lambda: changed(labels=[True] * 40), "it does not hold 40 labels"),
        (lambda: changed(labels=[*range(10)] * 3 + [10] * 10), "labels go from 0 to 10, not from 0 to 9"),
        (lambda: changed(labels=[-1, *range(1, 10)] * 4), "labels go from -1 to 9"),
        (lambda: changed(labels=[0, 1] * 20), "pictures of 2 classes, not of 10"),
        (lambda: python2([1, 2]), "it holds 0 numbers"),
        (lambda: changed()[:-20], "this is not a readable pickle"),
        (lambda: b"", "this is not a readable pickle"),
    ],
)
def test_another_pickle_is_said(tmp_path: Path, content: Any, message: str) -> None:
    publish_cifar(tmp_path, SMALL_CIFAR10, data_batch_2=content())
    with pytest.raises(DataError, match=rf"data_batch_2: .*{message}"):
        read_cifar(SMALL_CIFAR10, [tmp_path], validation=10)


def test_class_names_that_are_missing_or_repeated_are_said(tmp_path: Path) -> None:
    names = python2({"label_names": ["cat"] * 10})
    publish_cifar(tmp_path, SMALL_CIFAR10, **{"batches.meta": names})
    with pytest.raises(DataError, match=r"batches\.meta: .*it does not name 10 classes"):
        read_cifar(SMALL_CIFAR10, [tmp_path], validation=10)


def test_an_incomplete_folder_is_said(tmp_path: Path) -> None:
    publish_cifar(tmp_path, SMALL_CIFAR10)
    (tmp_path / SMALL_CIFAR10.folder / "data_batch_4").unlink()
    with pytest.raises(DataError, match=r"cifar-10-batches-py: there is no data_batch_4\. Complete the folder"):
        read_cifar(SMALL_CIFAR10, [tmp_path], validation=10)


def test_an_archive_that_is_cut_short_or_of_something_else_is_said(tmp_path: Path) -> None:
    publish_archive(tmp_path, SMALL_CIFAR10)
    path = tmp_path / SMALL_CIFAR10.archive
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz: .*damaged or cut short"):
        read_cifar(SMALL_CIFAR10, [tmp_path], validation=10)
    path.write_bytes(gzip.compress(b"no archive at all" * 100))
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz: the archive is damaged"):
        read_cifar(SMALL_CIFAR10, [tmp_path], validation=10)
    other = SMALL_CIFAR100
    publish_archive(tmp_path, other)
    (tmp_path / other.archive).rename(path)
    with pytest.raises(DataError, match=r"there is no data_batch_1, .*batches\.meta in it"):
        read_cifar(SMALL_CIFAR10, [tmp_path], validation=10)


def test_nothing_of_an_archive_is_written(tmp_path: Path) -> None:
    publish_archive(tmp_path, SMALL_CIFAR10)
    read_cifar(SMALL_CIFAR10, [tmp_path], validation=10)
    assert [path.name for path in tmp_path.iterdir()] == [SMALL_CIFAR10.archive]


@pytest.mark.parametrize("validation", [1, 7, 100, 1000, 1999])
def test_validation_takes_its_share_of_every_class(validation: int) -> None:
    labels = np.random.default_rng(1).permutation(np.repeat([0, 1, 2], [1000, 600, 400]))
    splits = split_off_validation(labels, validation)
    assert (splits == "val").sum() == validation
    counts = np.bincount(labels[splits == "val"], minlength=3)
    assert np.abs(counts - validation * np.array([0.5, 0.3, 0.2])).max() <= 1
    assert np.array_equal(splits, split_off_validation(labels, validation))


@pytest.mark.parametrize("validation", [0, -1, 10])
def test_no_validation_is_refused(validation: int) -> None:
    with pytest.raises(ConfigError, match=rf"data\.validation={validation}: write a number of pictures from 1 to 9"):
        split_off_validation(np.zeros(10, dtype=np.int64), validation)


def test_imagenet(tmp_path: Path) -> None:
    publish_imagenet(tmp_path)
    (tmp_path / "train" / "n00001" / "notes.txt").write_text("no picture")
    found = read_imagenet(tmp_path, validation=3)
    assert len(found) == 18
    assert found.label_names == ("n00000", "n00001", "n00002")
    assert found.size is None
    assert {name: int((found.splits == name).sum()) for name in ("train", "val", "test")} == {
        "train": 9,
        "val": 3,
        "test": 6,
    }
    picture = found[17]
    assert (picture.id, picture.label, picture.split) == ("val/n00002/n00002_1.JPEG", 2, "test")
    with Image.open(tmp_path / picture.id) as image:
        assert np.array_equal(picture.pixels.permute(1, 2, 0).numpy(), np.array(image))


def test_a_thousand_classes_have_the_names_of_torchvisions_weights(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for number in range(1000):
            folder = tmp_path / part / f"n{number:08}"
            folder.mkdir(parents=True)
            (folder / "a.JPEG").touch()
    names = read_imagenet(tmp_path, validation=1).label_names
    assert (names[0], names[999]) == ("tench", "toilet tissue")
    assert len(set(names)) == 1000


def test_imagenet_that_is_not_there_or_not_complete_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train: there is no such folder\. ImageNet cannot be downloaded .*ILSVRC2012"):
        read_imagenet(tmp_path, validation=1)
    publish_imagenet(tmp_path)
    (tmp_path / "val" / "n00009").mkdir()
    with pytest.raises(DataError, match=r"same folders of classes.*n00009"):
        read_imagenet(tmp_path, validation=1)
    (tmp_path / "train" / "n00009").mkdir()
    with pytest.raises(DataError, match="train/n00009: the folder holds no picture"):
        read_imagenet(tmp_path, validation=1)


@pytest.mark.real
@pytest.mark.skipif("ZOO_DATA" not in os.environ, reason="published data are found through $ZOO_DATA")
def test_the_real_fashion_mnist() -> None:
    root = Path(os.environ["ZOO_DATA"])
    if not (root / FASHION_MNIST.folder).is_dir():
        pytest.skip("FashionMNIST is not there")
    found = read_idx(FASHION_MNIST, [root], validation=5000)
    assert np.bincount(found.labels).tolist() == [7000] * 10
    assert {name: int((found.splits == name).sum()) for name in ("train", "val", "test")} == {
        "train": 55_000,
        "val": 5_000,
        "test": 10_000,
    }
    assert found[0].label == 9  # an ankle boot, as the authors' page shows
    train = found.pixels[:60_000] / np.float32(255)
    assert (float(train.mean()), float(train.std())) == pytest.approx((0.2860, 0.3530), abs=1e-4)


@pytest.mark.real
@pytest.mark.skipif("ZOO_DATA" not in os.environ, reason="published data are found through $ZOO_DATA")
@pytest.mark.parametrize("which", [CIFAR10, CIFAR100], ids=["10", "100"])
def test_the_real_cifar(which: Any) -> None:
    root = Path(os.environ["ZOO_DATA"])
    if not (root / which.folder).is_dir() and not (root / which.archive).is_file():
        pytest.skip(f"{which.folder} is not there")
    found = read_cifar(which, [root], validation=5000)
    assert np.bincount(found.labels).tolist() == [60_000 // which.classes] * which.classes
