"""Derived arrays: made once, mapped from the disk, made anew if anything they are made of differs, or if damaged."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from zoo.data.cache import Arrays, cached_arrays, identity
from zoo.errors import DataError


class Maker:
    """Makes arrays, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Arrays:
        self.times += 1
        return {
            "values": np.arange(12, dtype=np.float32).reshape(6, 2) + self.times,
            "ends": np.array([0, 2, 6]),
            "half": np.array([0.5], dtype=np.float16),
            "nothing": np.zeros((0, 3), dtype=np.int32),
        }


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_arrays_are_made_once_and_mapped(tmp_path: Path) -> None:
    make = Maker()
    first = cached_arrays(tmp_path, "features", {"bins": 4}, make)
    again = cached_arrays(tmp_path, "features", {"bins": 4}, make)
    assert make.times == 1
    assert isinstance(again["values"], np.memmap)
    for name, array in Maker()().items():
        assert first[name].dtype == again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)
    assert len(files(tmp_path)) == 1  # neither a lock nor a part is left


def test_the_file_is_a_safetensors_file(tmp_path: Path) -> None:
    cached_arrays(tmp_path, "features", {}, Maker())
    read = load_file(files(tmp_path)[0])
    assert {name: array.tolist() for name, array in read.items()} == {
        name: array.tolist() for name, array in Maker()().items()
    }


def test_what_is_made_of_something_else_is_another_file(tmp_path: Path) -> None:
    make = Maker()
    for made_of in ({"bins": 4}, {"bins": 5}, {"bins": 4, "version": "2"}):
        cached_arrays(tmp_path, "features", made_of, make)
    cached_arrays(tmp_path, "other", {"bins": 4}, make)
    assert make.times == 4
    assert len(files(tmp_path)) == 4


def test_without_a_folder_nothing_is_kept() -> None:
    make = Maker()
    for _ in range(2):
        cached_arrays(None, "features", {}, make)
    assert make.times == 2


def _cut(content: bytes) -> bytes:
    return content[:-3]


def _flipped(content: bytes) -> bytes:
    return content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]


def _longer(content: bytes) -> bytes:
    return content + b"x"


def _of_others(content: bytes) -> bytes:
    return content.replace(b"bins", b"bons")


def _no_header(content: bytes) -> bytes:
    return b"\xff" * len(content)


@pytest.mark.parametrize(
    "damage",
    [
        _cut,
        _flipped,
        _longer,
        _of_others,
        lambda content: b"",
        lambda content: content[:20],
        lambda content: b"\xff" * 40,
    ],
)
def test_a_damaged_file_is_noticed_and_made_anew(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    make = Maker()
    cached_arrays(tmp_path, "features", {"bins": 4}, make)
    path = files(tmp_path)[0]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(UserWarning, match=r"damaged; it is made anew"):
        found = cached_arrays(tmp_path, "features", {"bins": 4}, make)
    assert make.times == 2
    assert found["values"][0, 0] == 2
    assert cached_arrays(tmp_path, "features", {"bins": 4}, make)["values"][0, 0] == 2


def test_arrays_that_cannot_be_made_leave_nothing(tmp_path: Path) -> None:
    def fails() -> Any:
        raise DataError("x.wav: no sound")

    with pytest.raises(DataError, match="no sound"):
        cached_arrays(tmp_path, "features", {}, fails)
    assert not files(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DataError, match=r"cache.*cannot be kept there.*ZOO_CACHE"):
        cached_arrays(tmp_path / "cache", "features", {}, Maker())


def _make_slowly(job: tuple[Path, Path]) -> tuple[float, bool]:
    folder, log = job

    def make() -> Arrays:
        with log.open("a") as file:
            file.write("made\n")
        time.sleep(0.3)
        return Maker()()

    found = cached_arrays(folder, "features", {"bins": 4}, make)
    return float(found["values"].sum()), isinstance(found["values"], np.memmap)


def test_two_processes_that_need_the_same_make_it_once(tmp_path: Path) -> None:
    jobs = [(tmp_path / "cache", tmp_path / "log")] * 4
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = pool.map(_make_slowly, jobs, chunksize=1)
    assert set(found) == {(float(Maker()()["values"].sum()), True)}
    assert (tmp_path / "log").read_text() == "made\n"
    assert len(files(tmp_path / "cache")) == 1


def test_the_identity_of_a_file_is_that_of_its_content_and_time(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def found(content: bytes) -> str:
        path.write_bytes(content)
        with path.open("rb") as file:
            return identity(file, samples=3)

    large = bytes(50_000)
    assert len({found(each) for each in (b"", b"a", b"b", large, large[:-1] + b"x", large + b"x")}) == 6
