"""Inspects the file of a checkpoint before torch reads it.

`torch.load(weights_only=True)` imports nothing that it does not know, but it trusts declared sizes: the length of a
storage, the shape of a tensor. The code here reads the zip's directory and the pickle's opcodes, knows a few names,
builds inert stand-ins alone, and compares every declared size with the bytes in the file.
"""

from __future__ import annotations

import io
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple, NoReturn

from zoo.checkpoints.zip_validation import UnsafeFileError, members

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
_LONGEST_CODE = 1 << 28
_MOST_PARTS = 1_000_000


def inspect(file: BinaryIO) -> None:
    """Refuses a file that `torch.save` would not have written for weights and plain values.

    The memory that this takes is limited: 16 MiB for the names of the members, and some thirty times the length of the
    pickle, whose containers are counted.
    """
    file.seek(0)
    if file.read(4) != b"PK\x03\x04":
        raise UnsafeFileError("it does not begin as a zip archive")
    found = members(file, file.seek(0, io.SEEK_END))
    if any(name.startswith("code/") or name == "constants.pkl" for name in found):
        raise UnsafeFileError("it is a TorchScript archive, which is a program")
    if "data.pkl" not in found:
        raise UnsafeFileError("the archive has no data.pkl")
    if found["data.pkl"].size > _LONGEST_CODE:
        raise UnsafeFileError(f"its data.pkl is longer than {_LONGEST_CODE:,} bytes")
    file.seek(found["data.pkl"].start)
    code = file.read(found["data.pkl"].size)
    storages = {name.removeprefix("data/"): each.size for name, each in found.items() if name.startswith("data/")}
    try:
        _Reader(code, storages).load()
    except UnsafeFileError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise UnsafeFileError(f"the pickle in it is damaged: {str(error) or type(error).__name__}") from error


class _Storage(NamedTuple):
    size: int
    item: int


class _Named:
    """A stand-in for a class or function that the pickle names. A call checks its arguments and does nothing else."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *arguments: Any) -> _Inert:
        if self.name == "_rebuild_tensor_v2":
            _check_tensor(*arguments[:4])
        return _Inert()


class _Inert:
    """A stand-in for the result of a call."""

    def __setstate__(self, state: Any) -> None:
        """Ignores the state."""


def _check_tensor(storage: Any, offset: Any, shape: Any, stride: Any) -> None:
    """Checks that a tensor lies within its storage, and that no two of its numbers share a place there."""
    numbers = [offset, *shape, *stride]
    if not isinstance(storage, _Storage) or any(type(n) is not int or n < 0 for n in numbers):
        raise UnsafeFileError("a tensor is not made of a storage and sizes")
    if len(shape) != len(stride):
        raise UnsafeFileError("a tensor has not as many strides as sizes")
    count, last = 1, offset
    for size, step in zip(shape, stride, strict=True):
        count *= size
        last += max(0, size - 1) * step
    if count and (count * storage.item > storage.size or (last + 1) * storage.item > storage.size):
        declared = "x".join(map(str, shape)) or "1"
        raise UnsafeFileError(f"a tensor is declared {declared}, and {storage.size:,} bytes are there for it")


_PLAIN = (
    *(pickle.PROTO, pickle.STOP, pickle.GLOBAL, pickle.BUILD, pickle.BINPUT, pickle.LONG_BINPUT),
    *(pickle.BINGET, pickle.LONG_BINGET, pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS),
    *(pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1),
    *(pickle.BINFLOAT, pickle.BINUNICODE, pickle.EMPTY_TUPLE),
)
_COUNTED = (
    *(pickle.MARK, pickle.EMPTY_LIST, pickle.EMPTY_DICT, pickle.REDUCE, pickle.BINPERSID),
    *(pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
)
"""Opcodes of a byte or two that take far more memory."""


class _Codes(dict[int, Callable[..., Any]]):
    """Opcode -> its method, for the opcodes that torch writes; any other is refused."""

    def __missing__(self, code: int) -> NoReturn:
        raise UnsafeFileError(f"its pickle has a code {bytes([code])!r}, which torch does not write")


def _count_parts(code: Callable[[Any], None]) -> Callable[[Any], None]:
    def count_and_read(reader: _Reader) -> None:
        reader.parts += 1
        if reader.parts > _MOST_PARTS:
            raise UnsafeFileError(f"its pickle has more than {_MOST_PARTS:,} parts")
        code(reader)

    return count_and_read


class _Reader(pickle._Unpickler):  # the one in C reserves as much memory as the pickle asks for
    dispatch = _Codes(
        {code[0]: pickle._Unpickler.dispatch[code[0]] for code in _PLAIN}
        | {code[0]: _count_parts(pickle._Unpickler.dispatch[code[0]]) for code in _COUNTED}
    )

    def __init__(self, code: bytes, storages: Mapping[str, int]) -> None:
        super().__init__(io.BytesIO(code))
        self.storages = storages
        self.kinds: dict[str, str] = {}
        self.parts = 0

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        is_known = module == "torch" and (name in _ITEM_SIZES or name in ("Size", "device") or _DTYPE.fullmatch(name))
        if not is_known and (module, name) != ("torch._utils", "_rebuild_tensor_v2"):
            raise UnsafeFileError(f"it asks for {module}.{name}"[:200])
        return _Named(module, name)

    def persistent_load(self, pid: Any) -> _Storage:
        kind, made_of, key, _, count = pid
        if kind != "storage" or not isinstance(made_of, _Named) or made_of.name not in _ITEM_SIZES:
            raise UnsafeFileError("it refers to something that is not a storage")
        item = _ITEM_SIZES[made_of.name]
        if self.kinds.setdefault(key, made_of.name) != made_of.name:
            raise UnsafeFileError(f"storage {key} is declared in two ways")  # torch uses the first declaration alone
        if type(count) is not int or self.storages.get(key) != count * item:
            there = self.storages.get(key)
            bytes_there = "nothing is" if there is None else f"{there:,} bytes are"
            raise UnsafeFileError(f"a storage is declared to hold {count} numbers, and {bytes_there} there")
        return _Storage(count * item, item)
