"""Reads the records of a delimited file with their lines, so that a stray quote spoils one record and no others.

An opening quote that is never closed makes one cell of everything that follows, or of everything up to the next quote.
The lines of a bad record are therefore examined: if one of them is a record itself, reading continues after the first
line of the bad record. A record without a fault is taken as it is, unless a cell contains many records in a row.
"""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zoo.data.compressed import open_bytes
from zoo.data.encodings import UTF8, Encoding, Fault, find_decoding_fault
from zoo.errors import DataError

_MAX_CELL_LENGTH = 1 << 24
"""The most characters of a cell; csv's own limit of 131,072 is less than a long document has."""
_MAX_RECORDS_IN_CELL = 30
"""A cell with so many lines in a row that have as many delimiters as a record, and no quote, is no text."""


NUL = Fault("it has NUL characters, as UTF-16 has where no byte order mark names it", "Save the file as UTF-8.")
"""The fault of a line with NUL characters, which no text has."""


def read_records(
    path: Path, delimiter: str, columns: int | None = None, encoding: Encoding = UTF8
) -> Iterator[tuple[int, list[str] | Fault]]:
    """Yields the line on which each record begins, with its cells, or with a Fault if it is bad.

    Args:
        path: A file of text, perhaps compressed. Blank lines are no records.
        delimiter: One character.
        columns: The number of cells of a record, if known. The caller checks it for records of one line.
        encoding: The encoding of the file.

    Raises:
        DataError: The file cannot be read.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_CELL_LENGTH))
    try:
        content = open_bytes(path, encoding)
        with io.TextIOWrapper(content, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            lines = _Lines(file, delimiter, columns)
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            while True:
                lines.begin()
                try:
                    cells = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    yield lines.line, lines.fault(error)
                    continue
                if (len(lines.taken) > 1 or lines.is_again) and (problem := lines.problem(len(cells))):
                    yield lines.line, lines.fault(problem)
                elif fault := find_decoding_fault("".join(lines.taken), encoding):
                    yield lines.line, fault
                elif cells:
                    yield lines.line, cells
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror}).") from error


class _MisfitError(csv.Error):
    """A record of several lines has another number of cells than the header."""


class _UnclosedError(csv.Error):
    """A cell contains many records in a row."""


class _Lines:
    """Passes lines to csv: one for each record, and another as long as a quote is open."""

    def __init__(self, file: Iterator[str], delimiter: str, columns: int | None) -> None:
        self.line = 1
        """The number of the first line of `taken`."""
        self.taken: list[str] = []
        """The lines of the current record."""
        self.is_again = False
        """Whether these lines were part of a bad record before, so that they are examined in full."""
        self._file = file
        self._pushed_back: deque[str] = deque()
        self._delimiter = delimiter
        self._columns = columns
        self._last_bad_line = 0  # the last line of any bad record

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self.taken and self._columns is not None:
            self._go_on(self.taken[-1], self._columns)
        line = self._pushed_back.popleft() if self._pushed_back else next(self._file)
        self.taken.append(line)
        return line

    def begin(self) -> None:
        """Begins a record with the next line."""
        self.line += len(self.taken)
        self.taken = []
        self.is_again = self.line <= self._last_bad_line
        self._prefix = _EMPTY_PREFIX
        self._records = 0

    def problem(self, cells: int) -> csv.Error | None:
        """Returns the fault of a record that csv accepts; None if it is good, as most records of one line are."""
        if self._columns is None:
            return None
        is_long = len(self.taken) > 1
        has_stray = self._prefix.then(self.taken[-1], self._delimiter).has_stray
        if is_long and (cells != self._columns or (has_stray and any(map(self._is_record, self.taken[1:])))):
            return _MisfitError()
        return csv.Error("a quote inside of a cell") if self.is_again and has_stray else None

    def fault(self, error: csv.Error) -> Fault:
        """Returns the fault of the current record. Lines that do not belong to it are read again."""
        last_line = self.line + len(self.taken) - 1
        is_long = "field limit" in str(error)
        if is_long and len(self.taken) == 1:
            return Fault(f"a cell has more than {csv.field_size_limit():,} characters", "Shorten it.")
        is_unclosed = is_long or isinstance(error, _UnclosedError) or "unexpected end" in str(error)
        if is_unclosed or any(map(self._is_record, self.taken[1:])):
            self._pushed_back.extendleft(reversed(self.taken[1:]))
            self._last_bad_line = max(self._last_bad_line, last_line)
            self.taken = self.taken[:1]
        if is_unclosed:
            return Fault("a quote opened in this row is never closed")
        if isinstance(error, _MisfitError):
            problem = (
                f"its quotes make one row of lines {self.line} to {last_line}, whose cells are not those of the header"
            )
            return Fault(problem)
        return Fault(f"bad quotes ({error})")

    def _go_on(self, line: str, columns: int) -> None:
        """Stops where the lines so far cannot be the beginning of a record."""
        previous, self._prefix = self._prefix, self._prefix.then(line, self._delimiter)
        if self._prefix.delimiters >= columns:
            raise _MisfitError
        is_record = previous.is_open and '"' not in line and 0 < columns - 1 == line.count(self._delimiter)
        self._records = self._records + 1 if is_record else 0
        if self._records == _MAX_RECORDS_IN_CELL:
            raise _UnclosedError

    def _is_record(self, line: str) -> bool:
        """Returns whether a line has the cells of a record, or can be the beginning of one."""
        prefix = _EMPTY_PREFIX.then(line, self._delimiter)
        if self._columns is None or not line.strip("\r\n"):
            return False
        missing_delimiters = self._columns - 1 - prefix.delimiters
        return missing_delimiters == 0 or (missing_delimiters > 0 and prefix.is_open)


class _RecordPrefix(NamedTuple):
    """The delimiters and quotes in the lines of a record so far."""

    delimiters: int
    """The number of delimiters between cells."""
    has_stray: bool
    """Whether a cell that does not begin with a quote has one inside."""
    is_open: bool
    """Whether the last cell continues in the next line."""

    def then(self, line: str, delimiter: str) -> _RecordPrefix:
        """Returns the prefix with one more line."""
        delimiters, has_stray, is_open = self
        position = 0
        if not is_open and line.startswith('"'):
            is_open, position = True, 1
        while True:
            while is_open:
                position = line.find('"', position) + 1
                if not position:
                    return _RecordPrefix(delimiters, has_stray, True)
                is_open = line.startswith('"', position)  # doubled
                position += is_open
            end = line.find(delimiter, position)
            has_stray |= line.find('"', position, None if end < 0 else end) >= 0
            if end < 0:
                return _RecordPrefix(delimiters, has_stray, False)
            delimiters, position = delimiters + 1, end + 1
            if line.startswith('"', position):
                is_open, position = True, position + 1


_EMPTY_PREFIX = _RecordPrefix(0, False, False)
