"""Reads published pickles of arrays without running their code.

Names in a pickle are looked up in a table and never imported. A stand-in for an array checks its own state; callers add
stand-ins for other types that their files have.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from zoo.errors import DataError


class UnsafePickleError(pickle.UnpicklingError):
    """A pickle asks for a name that published files do not have."""


def unpickle(file: IO[bytes], path: Path, also: Mapping[tuple[str, str], Any] | None = None) -> Any:
    """Reads a pickle; the result has a `SavedArray` for each array.

    Args:
        file: The open file, at the start of the pickle.
        path: The path of the file, for messages.
        also: (module, name) -> stand-in, for types other than arrays.

    Raises:
        DataError: The pickle is damaged, or asks for any other name.
    """
    try:
        return _Unpickler(file, also or {}).load()
    except UnsafePickleError as error:
        raise DataError(
            f"{path}: the pickle was refused: {error}. Remove the file; it is not the published one."
        ) from None
    except DataError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        reason = str(error) or type(error).__name__
        raise DataError(f"{path}: this is not a readable pickle ({reason}). Remove the file.") from error


class SavedArray:
    """A stand-in for NumPy's array, which checks the state that the pickle gives it."""

    array = np.empty(0)

    def __init__(self, *_: Any) -> None:
        """Ignores the arguments of `ndarray` and `_reconstruct`; the state has everything."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        content = content.encode("latin1") if isinstance(content, str) else content
        self.array = np.frombuffer(content, dtype.check()).reshape(shape, order="F" if fortran else "C")


class _SavedType:
    """A stand-in for NumPy's dtype, of numbers alone."""

    def __init__(self, kind: str, *_: Any) -> None:
        self.kind = kind
        self.order: Literal["<", ">"] = "<"

    def __setstate__(self, state: Any) -> None:
        self.order = ">" if state[1] == ">" else "<"

    def check(self) -> np.dtype:
        if self.kind not in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"):
            raise UnsafePickleError(f"it holds an array of {self.kind!r}")
        return np.dtype(self.kind).newbyteorder(self.order)


_KNOWN: Mapping[tuple[str, str], Any] = {
    ("numpy", "ndarray"): SavedArray,
    ("numpy", "dtype"): _SavedType,
    ("numpy.core.multiarray", "_reconstruct"): SavedArray,
    ("numpy._core.multiarray", "_reconstruct"): SavedArray,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], also: Mapping[tuple[str, str], Any]) -> None:
        super().__init__(file, encoding="latin1")  # Python 2 wrote these files; its strings are bytes
        self.known = {**_KNOWN, **also}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.known:
            raise UnsafePickleError(f"it asks for {module}.{name}")
        return self.known[module, name]
