"""Pairs of texts as every reader gives them, and the compact form in which their tokens stay in memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from zoo.data.splits import SPLITS


class Rows(Sequence[Any]):
    """Rows of different lengths in one array, such as the tokens of many texts.

    Args:
        values: All rows, one after another.
        ends: The end of each row in `values`, after a 0.
    """

    def __init__(self, values: Int[np.ndarray, "t *d"], ends: Int[np.ndarray, " n"]) -> None:
        self.values, self.ends = values, ends

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, number: Any) -> Any:
        return self.values[self.ends[number] : self.ends[number + 1]]

    @property
    def lengths(self) -> Int[np.ndarray, " n"]:
        return np.diff(self.ends)


class RowsInMaking:
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

    def made(self) -> Rows:
        values = np.frombuffer(self._values, dtype=np.int32) if self._values else np.zeros(0, dtype=np.int32)
        return Rows(values.reshape(-1, self.width) if self.width else values, np.array(self._ends, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Corpus:
    """Texts and their translations.

    Args:
        sources: By number: the texts. What is no list reads them from files.
        targets: Their translations; None: not known.
        ids: A name for each pair.
        splits: `TRAIN`, `VAL`, `TEST` or `NONE` of `zoo.data.splits`.
        links: Gold alignment of each pair: words of the target and words of the source, by their numbers. Words are
            between white space. None: not known.
    """

    sources: Sequence[str]
    targets: Sequence[str] | None
    ids: Sequence[str]
    splits: Int[np.ndarray, " n"]
    links: Sequence[Int[np.ndarray, "l 2"]] | None = None

    def __len__(self) -> int:
        return len(self.splits)

    def numbers(self, split: str) -> Int[np.ndarray, " k"]:
        """The pairs of a split; of `all`, every one."""
        return np.arange(len(self)) if split == "all" else np.flatnonzero(self.splits == SPLITS.index(split))
