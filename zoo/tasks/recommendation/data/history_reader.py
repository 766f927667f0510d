"""Reads histories for a trained model from files that have one row for each user or for each interaction."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from zoo.data.option_hints import format_option
from zoo.data.tables import Row, Table, collect_errors, message
from zoo.errors import DataError, count_noun, did_you_mean
from zoo.tasks.recommendation.data.interaction_log import Duplicates, Log, make_log
from zoo.tasks.recommendation.data.interactions import InteractionCollector, Interactions, Vocabulary
from zoo.tasks.recommendation.data.parquet import ParquetTable
from zoo.tasks.recommendation.data.readers import ReaderOptions, interactions_of, is_parquet, open_table

HISTORY = "history"
_NAMES = {"|": "'|'", ",": "commas", " ": "spaces"}


def read_histories(
    paths: Sequence[Path],
    reading: ReaderOptions | None = None,
    *,
    known: Collection[str] | None = None,
    duplicates: Duplicates = "keep",
) -> Log:
    """Reads the histories in files. A `UserWarning` reports rows and columns that are not used.

    A file with a column `history` has one row for each user, with the items separated by `|`, oldest first. If no row
    has a `|`, the separator is a comma; if there is no comma either, a space. Any other file is read as a table of
    interactions. The users are in the order of their first rows.

    Args:
        paths: CSV, TSV or Parquet files. A user may be in several of them.
        reading: Names of the columns, and the rows that are left out.
        known: Items that are allowed. Default: all.
        duplicates: Whether an item that a user chose before is kept or dropped.

    Raises:
        DataError: A file is invalid. The message has the file, line, column and a remedy.
    """
    reading = reading or ReaderOptions()
    found = []
    for path in paths:
        found.append(_read(path, reading))
        if known is not None:
            _check_known(path, reading, found[-1].item_names, known)
    return make_log(**vars(_join(found, paths)), duplicates=duplicates)


def items_of(text: str, separator: str = ",") -> list[str]:
    """Splits a text into the names of items.

    Args:
        text: Names with separators between them; white space around a name is removed. If the separator is a comma, a
            name that contains a comma is quoted as in CSV.
        separator: A comma, `|` or a space.

    Raises:
        ValueError: The text is invalid; the message is a short phrase.
    """
    if separator == ",":
        try:
            (cells,) = csv.reader([text.strip()], skipinitialspace=True, strict=True)
        except (csv.Error, ValueError):
            raise ValueError("a quote is opened and not closed, or not doubled") from None
    else:
        cells = text.split() if separator == " " else text.split(separator)
    names = [cell.strip() for cell in cells]
    if not any(names):
        raise ValueError("the history is empty")
    if "" in names:
        raise ValueError(f"item {names.index('') + 1} of {len(names)} has no name")
    return names


def _read(path: Path, reading: ReaderOptions) -> Interactions:
    table = _open(path, reading)
    if HISTORY not in table.columns:
        return interactions_of(table, reading)
    collector = InteractionCollector()
    for user, items in table.parse(_row_reader(reading, _separator(table))):
        for item in items:
            collector.add_row(user, item)
    table.bad.warn()
    table.warn_of_unused((reading.user, HISTORY), "a row has a user and a history")
    return collector.finish()


def _open(path: Path, reading: ReaderOptions) -> Table:
    if is_parquet(path):
        return open_table(path, reading)
    table = open_table(path, reading, required=[reading.user])
    return table if HISTORY in table.columns else open_table(path, reading)


def _separator(table: Table) -> str:
    """Returns the separator of items: `|` if any row has one, else a comma if any row has one, else a space."""
    column, has_comma = table.index[HISTORY], False
    with collect_errors(), suppress(DataError):  # errors are reported when the rows are parsed
        for row in table:
            if "|" in row.cells[column]:
                return "|"
            has_comma = has_comma or "," in row.cells[column]
    return "," if has_comma else " "


def _row_reader(reading: ReaderOptions, separator: str) -> Callable[[Row], tuple[str, list[str]]]:
    lines: dict[str, int] = {}

    def read(row: Row) -> tuple[str, list[str]]:
        user = row.text(reading.user)
        if user in lines:
            what = f"{user!r} is already the user of line {lines[user]}"
            raise row.error(reading.user, what, "Write all items of a user into one row.")
        lines[user] = row.line
        try:
            return user, items_of(row.cells[row.table.index[HISTORY]], separator)
        except ValueError as error:
            remedy = f"Write items, oldest first, with {_NAMES[separator]} between them."
            raise row.error(HISTORY, str(error), remedy) from None

    return read


def _check_known(path: Path, reading: ReaderOptions, names: Sequence[str], known: Collection[str]) -> None:
    """Raises a DataError that names the first unknown item and its line."""
    strange = [name for name in names if name not in known]
    if not strange:
        return
    table = _open(path, reading)
    column = HISTORY if HISTORY in table.columns else reading.item
    more = f" (and {count_noun(len(strange) - 1, 'other')})" if len(strange) > 1 else ""
    what = f"{strange[0]!r} is not among the {len(known):,} items that the model knows{more}"
    remedy = f"{did_you_mean(strange[0], known)} {format_option('unknown', 'skip')} leaves such items out."
    raise DataError(message(path, _line_of(strange[0], table, column), column, what, remedy))


def _line_of(name: str, table: Table, column: str) -> int | None:
    """Returns the line of the first row that has this item."""
    if isinstance(table, ParquetTable):
        return None
    separator = _separator(table) if column == HISTORY else None
    with collect_errors(), suppress(DataError):
        for row in table:
            cell = row.cells[table.index[column]]
            with suppress(ValueError):
                if name in ([cell.strip()] if separator is None else items_of(cell, separator)):
                    return row.line
    return None


def _join(found: Sequence[Interactions], paths: Sequence[Path]) -> Interactions:
    """Joins the interactions of several files; users and items are matched by name."""
    if len(found) == 1:
        return found[0]
    timed = [each.times is not None for each in found]
    if any(timed) and not all(timed):
        first, other = paths[timed.index(True)], paths[timed.index(False)]
        raise DataError(f"{first} has timestamps and {other} has none; give both, or predict one at a time.")
    users, items = Vocabulary(), Vocabulary()
    return Interactions(
        users=np.concatenate([users.iter_with_indices(each.user_names)[each.users] for each in found]),
        items=np.concatenate([items.iter_with_indices(each.item_names)[each.items] for each in found]),
        times=np.concatenate([each.times for each in found if each.times is not None]) if all(timed) else None,
        user_names=list(users),
        item_names=list(items),
    )
