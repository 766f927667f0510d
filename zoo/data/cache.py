"""Arrays that are derived from files, such as features, kept on the disk for later runs and other processes.

    arrays = cached_arrays(cache, "features", {"files": [...], "bins": 40, "torchaudio": "2.11.0"}, make)

A file of the cache is named by a hash of all that its arrays are made of, so that a change of any of it makes another
file. It is a safetensors file, written at once or not at all, and memory-mapped when it is read. If several processes
need the same one, one makes it and the others wait.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os.path import samestat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from zoo import locks
from zoo.errors import DataError, warn
from zoo.io import open_atomic_bytes

Arrays = Mapping[str, np.ndarray]

_NAMES = {"f2": "F16", "f4": "F32", "i4": "I32", "i8": "I64", "u1": "U8"}
_DTYPES = {name: np.dtype(f"<{kind}") for kind, name in _NAMES.items()}
_BLOCK = 1 << 24
_SAMPLE_COUNT, _SAMPLE_BYTES = 64, 1 << 12


def cached_arrays(
    folder: Path | str | None, kind: str, made_of: Mapping[str, Any], make: Callable[[], Arrays]
) -> Arrays:
    """Returns arrays that are made once. They are checked when they are read, and made anew if they are damaged.

    Args:
        folder: The folder of derived files; None: the arrays are made, and not kept.
        kind: The name of a folder in it.
        made_of: All that decides the arrays, in plain types: the identities of files, options, versions of code.
        make: Makes the arrays: of float16, float32, int32, int64 or uint8.

    Raises:
        DataError: The folder cannot be written.
    """
    if folder is None:
        return make()
    description = json.dumps(made_of, sort_keys=True)
    path = Path(folder) / kind / f"{hashlib.blake2b(description.encode(), digest_size=16).hexdigest()}.safetensors"
    arrays = _read(path, description)
    if arrays is None:
        with _lock(path):
            arrays = _read(path, description)  # another process may have made it meanwhile
            if arrays is None:
                _write(path, make(), description)
                arrays = _read(path, description)
    if arrays is None:
        raise DataError(f"{path}: the file is damaged as soon as it is written. Set paths.cache to another folder.")
    return arrays


def identity(file: BinaryIO, samples: int = _SAMPLE_COUNT) -> str:
    """Returns a hash of an open file: of its size, its time, and parts of its content.

    Args:
        file: The file.
        samples: Number of parts of 4 KiB, at equal distances; a file that has no more is read whole.
    """
    status = os.fstat(file.fileno())
    size = status.st_size
    digest = hashlib.blake2b(f"{size} {status.st_mtime_ns}".encode(), digest_size=16)
    if size <= samples * _SAMPLE_BYTES:
        digest.update(os.pread(file.fileno(), size, 0))
    else:
        for number in range(samples):
            digest.update(
                os.pread(file.fileno(), _SAMPLE_BYTES, number * (size - _SAMPLE_BYTES) // max(1, samples - 1))
            )
    return digest.hexdigest()


def _write(path: Path, arrays: Arrays, description: str) -> None:
    """Writes a safetensors file: the length of the header, the header, the arrays by falling size of their elements."""
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    plain = {name: np.ascontiguousarray(arrays[name], arrays[name].dtype.newbyteorder("<")) for name in order}
    header: dict[str, Any] = {"__metadata__": {"made_of": description, "crc32": str(_compute_checksum(plain))}}
    offset = 0
    for name, array in plain.items():
        offsets = [offset, offset + array.nbytes]
        header[name] = {"dtype": _NAMES[array.dtype.str[1:]], "shape": array.shape, "data_offsets": offsets}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with _translate_errors(path), open_atomic_bytes(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in plain.values():
            for block in _iter_blocks(array):
                file.write(block)


def _read(path: Path, description: str) -> Arrays | None:
    """Maps the arrays of a file into memory; None if there is none, or it is damaged."""
    if not path.exists():
        return None
    arrays = _read_validated(path, description)
    if arrays is None:
        warn(f"{path}: this file of the cache is damaged; it is made anew.")
    return arrays


def _read_validated(path: Path, description: str) -> Arrays | None:
    try:
        with _translate_errors(path), path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, size)))
        metadata = header.pop("__metadata__")
        arrays = {
            name: _memory_map(
                path, _DTYPES[entry["dtype"]], tuple(entry["shape"]), 8 + length + entry["data_offsets"][0]
            )
            for name, entry in header.items()
        }
        is_whole = size == 8 + length + sum(array.nbytes for array in arrays.values())
        if is_whole and metadata == {"made_of": description, "crc32": str(_compute_checksum(arrays))}:
            return arrays
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    return None


def _memory_map(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> np.ndarray:
    if not np.prod(shape):
        return np.zeros(shape, dtype)  # nothing can be mapped
    return np.memmap(path, dtype, mode="r", offset=offset, shape=shape)


def _compute_checksum(arrays: Arrays) -> int:
    checksum = 0
    for _, array in sorted(arrays.items()):
        for block in _iter_blocks(array):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _iter_blocks(array: np.ndarray) -> Iterator[memoryview]:
    flat = array.reshape(-1).view(np.uint8)
    return (flat[start : start + _BLOCK].data for start in range(0, len(flat), _BLOCK))


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Waits until no other process is in the context of this lock, where the file system has locks."""
    lock = path.with_suffix(".lock")
    with _translate_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with _translate_errors(path):
            handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
        try:
            locks.acquire_aloud(
                handle, lambda holders: f"{path}: waiting until another process has made it ({holders})"
            )
            # The process that held the lock has removed the file that was opened here.
            if not (lock.exists() and samestat(lock.stat(), os.fstat(handle))):
                continue
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
            return
        finally:
            locks.release(handle)


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = f"{error.filename or path}: derived data cannot be kept there ({error.strerror or error})"
        raise DataError(
            f"{problem}. Make room, or set paths.cache or $ZOO_CACHE to a folder that can be written."
        ) from error
