"""Reads texts from their files on demand."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.data.json_lines import JSONTable
from zoo.data.line_index import Lines


class LazyColumn(Sequence[str]):
    """The texts of a column of a JSONL file; eight bytes a text are in memory.

    Args:
        table: The file as a table.
        lines: Its lines.
        numbers: The line of each text, from 1.
        column: The name of the column.
    """

    def __init__(self, table: JSONTable, lines: Lines, numbers: Sequence[int], column: str) -> None:
        self.table, self.lines, self.numbers, self.column = table, lines, array("q", numbers), column

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: Any) -> Any:
        return self.table.row(self.lines, self.numbers[number]).text(self.column)


class LazyLines(Sequence[str]):
    """Some lines of a text file, without surrounding white space; eight bytes a line are in memory.

    Args:
        lines: All lines.
        numbers: The lines that are texts, from 1.
    """

    def __init__(self, lines: Lines, numbers: Sequence[int]) -> None:
        self.lines, self.numbers = lines, array("q", numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: Any) -> Any:
        return self.lines[self.numbers[number] - 1].strip()


class Subset(Sequence[Any]):
    """Some entries of a sequence.

    Args:
        entries: The sequence.
        numbers: The entries that are chosen.
    """

    def __init__(self, entries: Sequence[Any], numbers: Sequence[int]) -> None:
        self.entries, self.numbers = entries, array("q", numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: Any) -> Any:
        return self.entries[self.numbers[number]]


class ConcatSequence(Sequence[Any]):
    """The entries of several sequences, one after another."""

    def __init__(self, parts: Sequence[Sequence[Any]]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, number: Any) -> Any:
        part = int(np.searchsorted(self.ends, range(len(self))[number], side="right"))
        return self.parts[part][number - (int(self.ends[part - 1]) if part else 0)]
