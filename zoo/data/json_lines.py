"""Reads JSONL files, which have one JSON object a line, as tables. The first line names the columns.

    table = JSONTable("reviews.jsonl", required=["text", "label"])
    labels = {row.line: row.text("label") for row in table}

Rows can be read again in any order, without the file in memory:

    lines = Lines("reviews.jsonl", cache)
    table.row(lines, 4_000_000).text("text")
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from zoo.data.csv_recovery import NUL
from zoo.data.encodings import UTF8, Encoding, Fault
from zoo.data.line_index import LONGEST, Lines, read_lines
from zoo.data.tables import OnBadRow, Required, Row, Table, check_columns, check_is_file, read_table
from zoo.errors import DataError

_OBJECT = 'Write one object a line: {"name": "value", ...}.'
_TOO_DEEP = Fault("it is nested too deeply", _OBJECT)


_ENDINGS = (".csv", ".tsv", ".tab", ".jsonl")


def is_table(path: Path) -> bool:
    """Returns whether a path is named like a table: CSV, TSV or JSONL, perhaps compressed."""
    return _get_table_suffix(path) in _ENDINGS


def open_table(path: Path, *, required: Required, on_bad_row: OnBadRow, encoding: Encoding = UTF8) -> Table:
    """Opens a table of any kind; see `JSONTable` and `read_table`."""
    open_kind = JSONTable if _get_table_suffix(path) == ".jsonl" else read_table
    return open_kind(path, required=required, on_bad_row=on_bad_row, encoding=encoding)


class JSONTable(Table):
    """The rows of a JSONL file. Blank lines are not rows.

    Strings become cells unchanged. null and missing names become empty cells. Other values become cells with their JSON
    text. A row with a name that the first line does not have is bad, so that no value is ignored silently.

    Args:
        path: A .jsonl file (also .jsonl.gz), with or without a byte order mark.
        required: The columns that the file must have; it may have others.
        on_bad_row: Whether a bad row stops the reading or is counted and left out.
        longest: The most bytes of a line.
        encoding: The encoding of the file.

    Raises:
        DataError: The file is missing or empty, its first line is not an object, or lacks a column.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        required: Required = (),
        on_bad_row: OnBadRow = "error",
        longest: int = LONGEST,
        encoding: Encoding = UTF8,
    ) -> None:
        path = Path(path)
        check_is_file(path)
        self.longest = longest
        line, first = next(_iter_filled_lines(path, longest, encoding), (0, "{}"))
        header = first if isinstance(first, Fault) else _parse_object(first)
        super().__init__(path, line, () if isinstance(header, Fault) else tuple(header), on_bad_row, "", encoding)
        if isinstance(header, Fault):
            remedy = f"The first line names the columns. {header.remedy}"
            raise DataError(f"{path}, line {line}: {header.what}. {remedy}")
        if not header:
            raise DataError(f"{path}: {'the first line names no column' if line else 'the file is empty'}. {_OBJECT}")
        check_columns(path, line, self.columns, required, "the first line does not name it")

    def __iter__(self) -> Iterator[Row]:
        good = self._start()
        for line, text in _iter_filled_lines(self.path, self.longest, self.encoding):
            cells = text if isinstance(text, Fault) else self._cells(text)
            if isinstance(cells, Fault):
                self.bad.add(self.error(line, None, *cells))
            else:
                good += 1
                yield Row(self, line, cells)
        self._check_any(good)

    def row(self, lines: Lines, line: int) -> Row:
        """Reads one row again.

        Args:
            lines: The lines of the same file.
            line: The number of the row's line, from 1.
        """
        cells = self._cells(lines[line - 1])
        if isinstance(cells, Fault):
            raise self.error(line, None, *cells)
        return Row(self, line, cells)

    def _cells(self, text: str) -> list[str] | Fault:
        cells = _parse_object(text)
        if isinstance(cells, Fault):
            return cells
        if len(cells) != len(self.columns) or not cells.keys() <= self.index.keys():
            unknown = [name for name in cells if name not in self.index]
            if unknown:
                remedy = "Name all columns there, with null where there is nothing."
                return Fault(f"it has {unknown[0]!r}, which line {self.line} does not have", remedy)
        try:
            return [_to_cell(cells.get(name)) for name in self.columns]
        except RecursionError:
            return _TOO_DEEP


def _get_table_suffix(path: Path) -> str:
    return Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()


def _iter_filled_lines(path: Path, longest: int, encoding: Encoding) -> Iterator[tuple[int, str | Fault]]:
    return (line for line in read_lines(path, longest, encoding) if isinstance(line[1], Fault) or line[1].strip())


def _parse_object(text: str) -> dict[str, Any] | Fault:
    """Parses the object of a line."""
    try:
        value = json.loads(text, parse_constant=_reject_constant, object_pairs_hook=_reject_repeated_keys)
    except json.JSONDecodeError as error:
        return Fault(f"it is not JSON ({error.msg}, at character {error.pos + 1})", _OBJECT)
    except ValueError as error:
        return Fault(f"it is not JSON ({error})", _OBJECT)
    except RecursionError:
        return _TOO_DEEP
    if not isinstance(value, dict):
        return Fault("it is JSON, and no object", _OBJECT)
    return (_find_forbidden_character(value) if "\\u" in text else None) or value


def _reject_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is named more than once")
    return entries


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _find_forbidden_character(value: Any) -> Fault | None:
    """Finds characters that JSON's escapes can write but text cannot have: NUL and single surrogates."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack += [*node, *node.values()]
        elif isinstance(node, list):
            stack += node
        elif isinstance(node, str):
            if "\0" in node:
                return NUL
            if any("\ud800" <= letter <= "\udfff" for letter in node):
                return Fault("it has half of a surrogate pair", "Write the character itself, in UTF-8.")
    return None


def _to_cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
