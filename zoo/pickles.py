"""What a checkpoint's file would make, found out without making it: a first look before torch's reader.

`torch.load(weights_only=True)` imports nothing that it does not know, but it believes sizes: how long a storage is,
how large a tensor on it. Here the zip's directory and the pickle's opcodes are read by code that knows ten names, makes
inert stand-ins, and compares every declared size with the bytes that are there.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_ITEM_SIZES = {
    "ByteStorage": 1,
    "CharStorage": 1,
    "BoolStorage": 1,
    "UntypedStorage": 1,
    "ShortStorage": 2,
    "HalfStorage": 2,
    "BFloat16Storage": 2,
    "IntStorage": 4,
    "FloatStorage": 4,
    "LongStorage": 8,
    "DoubleStorage": 8,
    "ComplexFloatStorage": 8,
    "ComplexDoubleStorage": 16,
}
_DTYPE = re.compile(r"(float|bfloat|int|uint|complex)\d+|bool")
_MOST_MEMBERS = 1_000_000


class RefusedError(Exception):
    """Why a file is not looked at further, in a few words."""


def inspect(path: Path) -> None:
    """Refuses a file that is not what `torch.save` makes of weights and plain values."""
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise RefusedError("it does not begin as a zip archive")
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = _members(archive, path.stat().st_size)
            (root,) = {name.partition("/")[0] for name in sizes}
            if f"{root}/data.pkl" not in sizes:
                raise RefusedError("the archive has no data.pkl")
            code = archive.read(f"{root}/data.pkl")
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise RefusedError(str(error)) from error
    storages = {name.removeprefix(f"{root}/data/"): size for name, size in sizes.items() if "/data/" in name}
    try:
        _Reader(code, storages).load()
    except RefusedError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise RefusedError(f"the pickle in it is damaged: {str(error) or type(error).__name__}") from error


def _members(archive: zipfile.ZipFile, file_size: int) -> dict[str, int]:
    """Name -> bytes; torch stores members as they are, one after the other, under one folder."""
    members = archive.infolist()
    names = [member.filename for member in members]
    if len(members) > _MOST_MEMBERS or len(set(names)) != len(names) or not names:
        raise RefusedError("the archive repeats names, or has none, or too many")
    for member in members:
        parts = member.filename.split("/")
        if member.filename.startswith(("/", "\\")) or ".." in parts or "\\" in member.filename or len(parts) < 2:
            raise RefusedError(f"the archive holds {member.filename!r}, which is not a name of torch's")
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise RefusedError(f"{member.filename!r} is compressed ({member.file_size:,} bytes); torch never does that")
        if member.flag_bits & 1:
            raise RefusedError(f"{member.filename!r} is encrypted")
    if sum(member.file_size for member in members) > file_size:
        raise RefusedError("the members of the archive overlap")
    folders = {name.partition("/")[0] for name in names}
    if len(folders) != 1 or archive.comment:
        raise RefusedError("the archive is not as torch writes it")
    if any("/code/" in name or name.endswith("/constants.pkl") for name in names):
        raise RefusedError("it is a TorchScript archive, which is a program")
    return {member.filename: member.file_size for member in members}


class _Storage(NamedTuple):
    size: int
    item: int


class _Named:
    """Stands for something that the pickle names; called, it does nothing but check."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *arguments: Any) -> _Inert:
        if self.name == "_rebuild_tensor_v2":
            _check_tensor(*arguments[:4])
        return _Inert()


class _Inert:
    """Stands for what a call would have returned."""

    def __setstate__(self, state: Any) -> None:
        """Whatever it is, it is not kept."""


def _check_tensor(storage: Any, offset: Any, shape: Any, stride: Any) -> None:
    """All of a tensor lies in its storage, and each of its numbers has a place of its own there."""
    numbers = [offset, *shape, *stride]
    if not isinstance(storage, _Storage) or any(type(n) is not int or n < 0 for n in numbers):
        raise RefusedError("a tensor is not made of a storage and sizes")
    if len(shape) != len(stride):
        raise RefusedError("a tensor has not as many strides as sizes")
    count, last = 1, offset
    for size, step in zip(shape, stride, strict=True):
        count *= size
        last += max(0, size - 1) * step
    if count and (count * storage.item > storage.size or (last + 1) * storage.item > storage.size):
        declared = "x".join(map(str, shape)) or "1"
        raise RefusedError(f"a tensor is declared {declared}, and {storage.size:,} bytes are there for it")


class _Reader(pickle._Unpickler):  # the one in C reserves memory as the pickle says
    def __init__(self, code: bytes, storages: Mapping[str, int]) -> None:
        super().__init__(io.BytesIO(code))
        self.storages = storages

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        is_known = module == "torch" and (name in _ITEM_SIZES or name in ("Size", "device") or _DTYPE.fullmatch(name))
        if not is_known and (module, name) != ("torch._utils", "_rebuild_tensor_v2"):
            raise RefusedError(f"it asks for {module}.{name}"[:200])
        return _Named(module, name)

    def persistent_load(self, pid: Any) -> _Storage:
        kind, made_of, key, _, count = pid
        if kind != "storage" or not isinstance(made_of, _Named) or made_of.name not in _ITEM_SIZES:
            raise RefusedError("it refers to something that is not a storage")
        item = _ITEM_SIZES[made_of.name]
        if type(count) is not int or self.storages.get(key) != count * item:
            there = self.storages.get(key)
            bytes_there = "nothing is" if there is None else f"{there:,} bytes are"
            raise RefusedError(f"a storage is declared to hold {count} numbers, and {bytes_there} there")
        return _Storage(count * item, item)
