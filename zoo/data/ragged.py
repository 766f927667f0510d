"""Rows of different lengths in one array: the tokens of many texts, the frames of many recordings."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped


class RaggedArray(Sequence[Any]):
    """Rows of different lengths in one array.

    Args:
        values: All rows, one after another.
        ends: The end of each row in `values`, after a 0.
    """

    def __init__(self, values: Shaped[np.ndarray, "t *d"], ends: Int[np.ndarray, " n"]) -> None:
        self.values, self.ends = values, ends

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, number: Any) -> Any:
        return self.values[self.ends[number] : self.ends[number + 1]]

    def select(self, numbers: Int[np.ndarray, " k"]) -> RaggedArray:
        """Returns the rows with these numbers."""
        mask = np.zeros(len(self), dtype=bool)
        mask[numbers] = True
        ends = np.concatenate([[0], self.lengths[mask].cumsum()])
        return RaggedArray(self.values[np.repeat(mask, self.lengths)], ends)

    @property
    def lengths(self) -> Int[np.ndarray, " n"]:
        return np.diff(self.ends)


class RaggedBuilder:
    """Rows to which others are appended, without a Python object for each number.

    Args:
        width: How many numbers an entry has; 0: it is one number.
    """

    def __init__(self, width: int = 0) -> None:
        self.width = width
        self._values, self._ends = array("i"), array("q", [0])

    def append(self, numbers: Iterable[int]) -> None:
        """Appends a row, whose entries are written one after another if they have several numbers."""
        self._values.extend(numbers)
        self._ends.append(len(self._values) // max(1, self.width))

    def build(self) -> RaggedArray:
        values = np.frombuffer(self._values, dtype=np.int32) if self._values else np.zeros(0, dtype=np.int32)
        return RaggedArray(
            values.reshape(-1, self.width) if self.width else values, np.array(self._ends, dtype=np.int64)
        )
