"""Published pickles of arrays. A pickle can run any code: this reader knows arrays and plain containers alone.

Names in a pickle are looked up in a table and never imported; what stands for an array checks its own state, and a
reader that knows more kinds of things brings stand-ins of its own.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from zoo.errors import DataError


class RefusedError(pickle.UnpicklingError):
    """A pickle asks for something that no published file has."""


def unpickle(file: IO[bytes], path: Path, also: Mapping[tuple[str, str], Any] | None = None) -> Any:
    """What a pickle holds; where it has an array there is a `SavedArray`.

    Args:
        file: Open where the pickle begins.
        path: Of the file, for messages.
        also: (module, name) -> what stands for it, of what is known besides arrays.

    Raises:
        DataError: the pickle is damaged, or asks for something else.
    """
    try:
        return _Unpickler(file, also or {}).load()
    except RefusedError as error:
        raise DataError(
            f"{path}: the pickle was refused: {error}. Remove the file; it is not the published one."
        ) from None
    except DataError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        reason = str(error) or type(error).__name__
        raise DataError(f"{path}: this is not a readable pickle ({reason}). Remove the file.") from error


class SavedArray:
    """Takes the place of NumPy's array in a pickle: its state is checked here, not by code that trusts it."""

    array = np.empty(0)

    def __init__(self, *_: Any) -> None:
        """Ignores what `ndarray` and `_reconstruct` are called with; all that matters is in the state."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        content = content.encode("latin1") if isinstance(content, str) else content
        self.array = np.frombuffer(content, dtype.plain()).reshape(shape, order="F" if fortran else "C")


class _SavedType:
    """Takes the place of NumPy's dtype; only numbers are admitted."""

    def __init__(self, kind: str, *_: Any) -> None:
        self.kind = kind
        self.order: Literal["<", ">"] = "<"

    def __setstate__(self, state: Any) -> None:
        self.order = ">" if state[1] == ">" else "<"

    def plain(self) -> np.dtype:
        if self.kind not in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"):
            raise RefusedError(f"it holds an array of {self.kind!r}")
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
            raise RefusedError(f"it asks for {module}.{name}")
        return self.known[module, name]
