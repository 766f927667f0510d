"""Reads CSV and TSV files row by row. Errors name the file, line and column, and how to mend them.

    table = read_table("nodes.csv", required=["id", "weight"])
    weights = {row.text("id"): row.number("weight") for row in table}

A reader that can leave out bad rows passes its function to the table, which stops at a bad row or counts it:

    table = read_table("nodes.csv", required=["id", "weight"], on_bad_row="skip")
    weights = dict(table.parse(lambda row: (row.text("id"), row.number("weight"))))
    table.bad.warn()

What tables of examples have in common (names, splits, labels) is in `zoo.data.records`.

A preflight collects all problems instead of stopping at the first:

    with collect_errors() as problems:
        read_graph(...)
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Float32

from zoo.data.encodings import UTF8, Encoding, Fault
from zoo.data.option_hints import is_offered, skip_hint
from zoo.errors import DataError, count_noun, did_you_mean, join_names, quote_value, warn

OnBadRow = Literal["error", "skip"]
T = TypeVar("T")

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_MAX_PATH_BYTES, _MAX_NAME_BYTES = 4095, 255  # bytes of a path, and of a name in it
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How the user's own files are read.

    Args:
        on_bad_row: Whether a bad row, line or file is an error, or left out and counted (`skip`).
        encoding: Encoding of the files.
    """

    on_bad_row: OnBadRow = "error"
    encoding: Encoding = UTF8


class RowError(DataError):
    """A bad row, which `on_bad_row="skip"` counts instead of raising this."""


Required = Sequence[str] | Mapping[str, str]
"""Names of columns that must exist; or these names, each with the option that says which column is meant."""

_collected: ContextVar[list[DataError] | None] = ContextVar("collected", default=None)


@contextmanager
def collect_errors() -> Iterator[list[DataError]]:
    """Leaves out bad rows inside its context, instead of stopping the reading, and lists their bad cells."""
    problems: list[DataError] = []
    token = _collected.set(problems)
    try:
        yield problems
    finally:
        _collected.reset(token)


@contextmanager
def collect_error() -> Iterator[None]:
    """Lists a DataError of its context while problems are collected; otherwise the error is raised."""
    try:
        yield
    except DataError as error:
        problems = _collected.get()
        if problems is None:
            raise
        problems.append(error)


def is_collecting() -> bool:
    """Returns whether all problems are being collected, also those that take long to find."""
    return _collected.get() is not None


@dataclass
class BadRows:
    """Bad rows, lines or files of one place: an error, listed while problems are collected, or left out and counted.

    Args:
        place: The file or folder.
        policy: `error` or `skip`.
        noun: Word for one of them where they are counted.
        plural: Word for several in the hint to the option that leaves them out.
    """

    place: Path
    policy: OnBadRow
    noun: str = "row"
    plural: str = "rows"
    skipped: int = 0
    first: str = ""
    listed: int = 0
    """Number of those that were listed, which may cause other problems of the whole file."""

    def __post_init__(self) -> None:
        if self.policy not in ("error", "skip"):
            raise DataError(f"on_bad_row is {self.policy!r}; it is either 'error' or 'skip'.")

    @property
    def are_listed(self) -> bool:
        """Whether they are listed, instead of raised or counted."""
        return self.policy == "error" and is_collecting()

    def add(self, error: DataError) -> None:
        """Raises, lists or counts the error of one of them."""
        if self.policy == "skip":
            self.skipped += 1
            self.first = self.first or str(error)
            return
        with collect_error():
            self.listed += 1
            raise error if is_collecting() else type(error)(f"{error} {skip_hint(self.plural)}")

    def report(self) -> str:
        """Returns a sentence about those that were left out; empty if there are none."""
        if not self.skipped:
            return ""
        return f"{self.place}: skipped {count_noun(self.skipped, f'bad {self.noun}')}. The first: {self.first}"

    def warn(self) -> None:
        """Warns of those that were left out."""
        if self.skipped:
            warn(self.report())


def read_table(
    path: Path | str, *, required: Required = (), on_bad_row: OnBadRow = "error", encoding: Encoding = UTF8
) -> Table:
    """Opens a table and checks its header; the rows are read when they are iterated.

    Args:
        path: a `.csv` or `.tsv` file (also `.csv.gz`, `.tsv.gz`), with or without a byte order mark. Cells may be
            quoted, and then contain delimiters and line breaks. Blank lines are not rows.
        required: the columns that must be there, perhaps with the options that name them; others may be.
        on_bad_row: whether a bad row stops the reading or is counted and left out. A row that is no text in the
            encoding is a bad one.
        encoding: the encoding of the file.

    Raises:
        DataError: the file is missing or empty, or its header lacks, repeats or does not name a column.
    """
    from zoo.data.csv_recovery import read_records

    path = Path(path)
    kind = Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()
    if kind not in _DELIMITERS:
        raise DataError(
            f"{path}: the name ends in {path.suffix!r}. Tables are read from .csv (commas) and .tsv (tabs)."
        )
    check_is_file(path)
    delimiter = _DELIMITERS[kind]
    line, cells = next(read_records(path, delimiter, encoding=encoding), (0, []))
    if isinstance(cells, Fault):
        remedy = f"Mend the header, which names the columns. {cells.remedy}"
        raise DataError(message(path, line, None, cells.what, remedy))
    columns = tuple(cell.strip() for cell in cells)
    if not any(columns):
        raise DataError(f"{path}: the file is empty. Its first line must name the columns, one row a line follows.")
    _check_header(path, line, columns, required)
    return Table(path, line, columns, on_bad_row, delimiter, encoding)


@dataclass
class Table:
    """The rows of one file. Each iteration reads the file again, and counts the rows that it skips."""

    path: Path
    line: int  # of the header
    columns: tuple[str, ...]
    on_bad_row: OnBadRow
    delimiter: str
    encoding: Encoding = UTF8
    index: dict[str, int] = field(init=False)
    bad: BadRows = field(init=False)

    def __post_init__(self) -> None:
        self.bad = BadRows(self.path, self.on_bad_row)
        self.index = {name: i for i, name in enumerate(self.columns)}

    def __iter__(self) -> Iterator[Row]:
        from zoo.data.csv_recovery import read_records

        good = self._start()
        records = read_records(self.path, self.delimiter, len(self.columns), self.encoding)
        next(records)
        for line, cells in records:
            if isinstance(cells, Fault):
                self.bad.add(self.error(line, None, *cells))
            elif len(cells) != len(self.columns):
                fields = [count_noun(len(part), "field") for part in (cells, self.columns)]
                problem = f"the row has {fields[0]} where the header has {fields[1]}"
                remedy = "Give each column one cell; quote a cell that has delimiters."
                self.bad.add(self.error(line, None, problem, remedy))
            else:
                good += 1
                yield Row(self, line, cells)
        self._check_any(good)

    def parse(self, read: Callable[[Row], T]) -> Iterator[T]:
        """Yields the results of `read` for each row. A `RowError` that it raises is handled as `on_bad_row` says."""
        good = 0
        for row in self:
            try:
                value = read(row)
            except RowError as error:
                if not row.is_bad:  # otherwise a listed cell may be the cause
                    self.bad.add(error)
                continue
            if row.is_bad:
                continue
            good += 1
            yield value
        self._check_any(good)

    def report(self) -> str:
        """Returns a sentence about skipped rows; empty if there are none."""
        return self.bad.report()

    def warn_of_unused(self, used: Collection[str | None], usage: str) -> None:
        """Warns of columns other than these; `usage`, what such a table has, is the end of the sentence."""
        if unused := [name for name in self.columns if name not in used]:
            warn(f"{self.path}: {join_names(unused)} not used; {usage}.")

    def error(self, line: int, column: str | None, problem: str, remedy: str) -> RowError:
        """Returns the error of a bad row, to be raised inside `parse`, which adds how such rows are left out."""
        return RowError(message(self.path, line, column, problem, remedy))

    def _start(self) -> int:
        """Counts bad rows anew; returns the number of good ones so far."""
        self.bad.skipped, self.bad.first, self.bad.listed = 0, "", 0
        return 0

    def _check_any(self, good: int) -> None:
        if good:
            return
        if self.bad.skipped:
            raise DataError(f"{self.path}: no row is usable. {self.report()}")
        if self.bad.listed:
            raise DataError(f"{self.path}: no row is usable.")
        raise DataError(f"{self.path}: there is a header and no rows. Add one row a line under it.")


@dataclass(slots=True)
class Row:
    """One row: its cells as they are in the file, and the line on which it begins."""

    table: Table
    line: int
    cells: list[str]
    is_bad: bool = False
    """Whether a problem of one of its cells was collected; the cell has then a placeholder for its value."""

    def text(self, column: str, *, empty: bool = False) -> str:
        """Returns the cell without surrounding white space; an empty one is an error unless `empty` allows it."""
        cell = self.cells[self.table.index[column]].strip()
        if not cell and not empty:
            self._bad(self.error(column, "the cell is empty", "Fill it in."))
        return cell

    def choice(self, column: str, options: Collection[str], *, empty: bool = False) -> str:
        """Returns the cell, which must be one of `options`; "" if it is not, and problems are collected."""
        cell = self.text(column, empty=empty)
        if cell and cell not in options:
            problem = f"{cell!r} is not one of the {len(options)} values it can have"
            self._bad(self.error(column, problem, did_you_mean(cell, options)))
            return ""
        return cell

    def number(self, column: str) -> float:
        """Returns the cell as a finite number."""
        cell = self.cells[self.table.index[column]]
        try:
            return parse_number(cell)
        except ValueError as error:
            self._bad(self.error(column, str(error), "Write a finite number such as 0.5 or -2e3."))
            return 0.0

    def numbers(self, columns: Sequence[str]) -> Float32[np.ndarray, " columns"]:
        """Returns many cells as 32-bit numbers, read faster than one by one."""
        index, cells = self.table.index, self.cells
        texts = [cells[index[column]] for column in columns]
        try:
            values = np.array(list(map(float, texts)), dtype=np.float64)
            if np.abs(values).max(initial=0.0) <= _MAX_FLOAT32 and "_" not in "".join(texts):
                return values.astype(np.float32)
        except ValueError:
            pass
        return np.array([self.number(column) for column in columns], dtype=np.float32)  # finds the bad cell

    def name(self, column: str) -> str:
        """Returns the cell as the name of a file."""
        name = self.text(column)
        longest = max(len(part.encode()) for part in name.split("/"))
        if len(name.encode()) > _MAX_PATH_BYTES or longest > _MAX_NAME_BYTES:
            self._bad(self.error(column, f"the name of {len(name):,} characters is too long for a file", "Shorten it."))
        else:
            return name
        return ""

    def path(self, column: str, folder: Path) -> Path:
        """Returns the cell as a file: absolute, or relative to a folder, which it may lead out of."""
        return folder / self.name(column)

    def error(self, column: str | None, problem: str, remedy: str) -> RowError:
        """Returns the error of this row."""
        return self.table.error(self.line, column, problem, remedy)

    def _bad(self, error: RowError) -> None:
        if not self.table.bad.are_listed:
            raise error
        self.table.bad.add(error)
        self.is_bad = True


def parse_number(cell: str) -> float:
    """Returns the cell as a finite number; a ValueError says why it is none."""
    if not cell.strip():
        raise ValueError("the cell is empty where a number belongs")
    try:
        value = float(cell)
    except ValueError:
        raise ValueError(f"{cell!r} is not a number") from None
    if "_" in cell:  # float() accepts 1_000
        raise ValueError(f"{cell!r} is not a number")
    if not math.isfinite(value):
        raise ValueError(f"{cell!r} is not finite")
    if abs(value) > _MAX_FLOAT32:
        raise ValueError(f"{cell!r} is too large for 32 bits")
    return value


def check_is_file(path: Path) -> None:
    """Refuses a path that leads to no file."""
    if not path.is_file():
        problem = "does not exist" if not path.exists() else "is a folder" if path.is_dir() else "is a device or a pipe"
        raise DataError(f"{path}: the file {problem}. Check the path, which is taken from {Path.cwd()}.")


def message(path: Path, line: int | None, column: str | None, problem: str, remedy: str) -> str:
    """Returns a message in the form of all about files: file, line, column, what is wrong, how to mend it."""
    place = str(path) if line is None else f"{path}, line {line}"
    return f"{place}: {problem}. {remedy}" if column is None else f"{place}, column {column!r}: {problem}. {remedy}"


def check_columns(path: Path, line: int | None, columns: Sequence[str], required: Required, problem: str) -> None:
    """Refuses a header that lacks columns; proposes the options that name others, or the columns themselves.

    Args:
        path: The file.
        line: Line of the header, if it has one.
        columns: Names of the columns.
        required: The columns that must be there.
        problem: What is wrong then.
    """
    names = set(columns)
    missing = [name for name in required if name not in names]
    if not missing:
        return
    offer = did_you_mean(missing[0], columns)
    if len(offer) > 300:  # where nothing is close, a wide table's columns are no help as a list
        offer = f"None of the {len(columns)} columns has such a name."
    remedy = "Add the column, or rename the one that is meant."
    if isinstance(required, Mapping) and all(is_offered(required[name].removeprefix("data.")) for name in missing):
        others = [name for name in columns if name not in required]
        candidates = others if len(others) == len(missing) else ["COLUMN"] * len(missing)
        overrides = " ".join(map(_format_override, (required[name] for name in missing), candidates))
        remedy = f"Say which column is meant, such as {overrides}, or rename it."
    if len(columns) == 1 and ";" in columns[0]:
        offer, remedy = "The header is separated by semicolons:", "save the file with commas."
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    raise DataError(message(path, line, missing[0], f"{problem}{more}", f"{offer} {remedy}"))


def _format_override(option: str, value: str) -> str:
    """Returns an option as it is typed."""
    if value.isidentifier():
        return f"{option}={value}"
    assignment = f"{option}={quote_value(value)}"
    return shlex.quote(assignment) if set(assignment) & set('"$`\\!') else f'"{assignment}"'


def _check_header(path: Path, line: int, columns: tuple[str, ...], required: Required) -> None:
    if "" in columns:
        problem = f"column {columns.index('') + 1} of {len(columns)} has no name"
        raise DataError(
            message(path, line, None, problem, "Name it, or leave it out (pandas: to_csv(..., index=False)).")
        )
    repeated = [name for name, count in Counter(columns).items() if count > 1]
    if repeated:
        raise DataError(message(path, line, repeated[0], "the header names it more than once", "Rename or remove one."))
    check_columns(path, line, columns, required, "the header does not name it")
