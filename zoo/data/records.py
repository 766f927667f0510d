"""The records of a delimited file, each with its line; a stray quote costs one record and not those that follow.

A quote that opens a cell and is never closed makes one cell of all that follows, or of all up to the next quote. So the
lines that a bad record took are looked at: where one of them is a record itself, reading goes on behind the first line
of the bad one. What is without fault is taken as it is written, unless a cell holds record after record.
"""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zoo.data.compressed import open_bytes
from zoo.errors import DataError

_LONGEST_CELL = 1 << 24
"""Characters; csv's own limit of 131,072 is less than a long document."""
_MOST_RECORDS = 30
"""Lines of a cell, one after another, each with as many delimiters as a record and no quote: no text is like that."""


class Fault(NamedTuple):
    """What is wrong with a record, and how it is mended."""

    what: str
    remedy: str = "Put a cell that has quotes inside quotes, and double them."


NUL = Fault("it has NUL characters, as UTF-16 has where no byte order mark names it", "Save the file as UTF-8.")
"""Of a line; the text of no record has them."""


def read_records(path: Path, delimiter: str, columns: int | None = None) -> Iterator[tuple[int, list[str] | Fault]]:
    """Each record with the line on which it begins; in place of its cells, what is wrong with it.

    Args:
        path: A file in UTF-8, perhaps compressed. Blank lines are no records.
        delimiter: One character.
        columns: Cells of a record, where that is known; a record on one line may have others, and is the caller's.

    Raises:
        DataError: The file cannot be read, or is not UTF-8.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
    try:
        with io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline="") as file:
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
                elif any("\0" in line for line in lines.taken):
                    yield lines.line, NUL
                elif cells:
                    yield lines.line, cells
    except UnicodeDecodeError:
        line, byte = _undecodable(path)
        what = f"{path}, line {line}: byte 0x{byte:02x} is not UTF-8 text"
        raise DataError(f"{what}. Save the file as UTF-8 (a spreadsheet offers 'CSV UTF-8').") from None
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror}).") from error


class _MisfitError(csv.Error):
    """The cells of a record of several lines are not those of the header."""


class _UnclosedError(csv.Error):
    """A cell holds record after record."""


class _Lines:
    """The lines of a file as csv asks for them: one for each record, and another as long as a quote is open."""

    def __init__(self, file: Iterator[str], delimiter: str, columns: int | None) -> None:
        self.line = 1
        """That of the first of `taken`."""
        self.taken: list[str] = []
        """Lines of the present record."""
        self.is_again = False
        """A bad record took them before: nothing of them is read on trust."""
        self._file = file
        self._again: deque[str] = deque()
        self._delimiter = delimiter
        self._columns = columns
        self._taken_to = 0  # the last line that a bad record took

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self.taken and self._columns is not None:
            self._go_on(self.taken[-1], self._columns)
        line = self._again.popleft() if self._again else next(self._file)
        self.taken.append(line)
        return line

    def begin(self) -> None:
        """The line that is asked for next is the first of a record."""
        self.line += len(self.taken)
        self.taken = []
        self.is_again = self.line <= self._taken_to
        self._seen = _NOTHING
        self._records = 0

    def problem(self, cells: int) -> csv.Error | None:
        """Why the present record is none, though csv takes it for one; most of them stand on one line, and may be."""
        if self._columns is None:
            return None
        is_long = len(self.taken) > 1
        has_stray = self._seen.then(self.taken[-1], self._delimiter).has_stray
        if is_long and (cells != self._columns or (has_stray and any(map(self._is_record, self.taken[1:])))):
            return _MisfitError()
        return csv.Error("a quote inside of a cell") if self.is_again and has_stray else None

    def fault(self, error: csv.Error) -> Fault:
        """What is wrong with the present record; lines that it should not have taken are read again."""
        last = self.line + len(self.taken) - 1
        is_long = "field limit" in str(error)
        if is_long and len(self.taken) == 1:
            return Fault(f"a cell has more than {csv.field_size_limit():,} characters", "Shorten it.")
        is_unclosed = is_long or isinstance(error, _UnclosedError) or "unexpected end" in str(error)
        if is_unclosed or any(map(self._is_record, self.taken[1:])):
            self._again.extendleft(reversed(self.taken[1:]))
            self._taken_to = max(self._taken_to, last)
            self.taken = self.taken[:1]
        if is_unclosed:
            return Fault("a quote opened in this row is never closed")
        if isinstance(error, _MisfitError):
            what = f"its quotes make one row of lines {self.line} to {last}, whose cells are not those of the header"
            return Fault(what)
        return Fault(f"bad quotes ({error})")

    def _go_on(self, line: str, columns: int) -> None:
        """Refuses to read on where the lines so far cannot be the beginning of a record."""
        before, self._seen = self._seen, self._seen.then(line, self._delimiter)
        if self._seen.delimiters >= columns:
            raise _MisfitError
        is_record = before.is_open and '"' not in line and 0 < columns - 1 == line.count(self._delimiter)
        self._records = self._records + 1 if is_record else 0
        if self._records == _MOST_RECORDS:
            raise _UnclosedError

    def _is_record(self, line: str) -> bool:
        """Whether a line has the cells of a record, or those of the beginning of one."""
        seen = _NOTHING.then(line, self._delimiter)
        if self._columns is None or not line.strip("\r\n"):
            return False
        lacking = self._columns - 1 - seen.delimiters
        return lacking == 0 or (lacking > 0 and seen.is_open)


class _Seen(NamedTuple):
    """What the lines of a record come to, up to here."""

    delimiters: int
    """Those that part cells."""
    has_stray: bool
    """There is a quote inside of a cell that does not begin with one."""
    is_open: bool
    """The last cell goes on in the next line."""

    def then(self, line: str, delimiter: str) -> _Seen:
        """With one more line."""
        delimiters, has_stray, is_open = self
        at = 0
        if not is_open and line.startswith('"'):
            is_open, at = True, 1
        while True:
            while is_open:
                at = line.find('"', at) + 1
                if not at:
                    return _Seen(delimiters, has_stray, True)
                is_open = line.startswith('"', at)  # doubled
                at += is_open
            end = line.find(delimiter, at)
            has_stray |= line.find('"', at, None if end < 0 else end) >= 0
            if end < 0:
                return _Seen(delimiters, has_stray, False)
            delimiters, at = delimiters + 1, end + 1
            if line.startswith('"', at):
                is_open, at = True, at + 1


_NOTHING = _Seen(0, False, False)


def _undecodable(path: Path) -> tuple[int, int]:
    """The first line that is not UTF-8, and its offending byte. Decoding a stream forgets the line, so look again."""
    line = 0
    with open_bytes(path) as file:
        for line, content in enumerate(file, start=1):
            try:
                content.decode("utf-8")
            except UnicodeDecodeError as error:
                return line, content[error.start]
    return line, 0
