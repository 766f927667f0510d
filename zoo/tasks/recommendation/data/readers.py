"""Reads the user's own interactions: a table with one row for each. `data/README.md` describes the format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from zoo.data.tables import Required, Row, Table, TableOptions, read_table
from zoo.errors import ConfigError, DataError, warn
from zoo.tasks.recommendation.data.csv_blocks import add_columns
from zoo.tasks.recommendation.data.interactions import Clock, InteractionCollector, Interactions, IrregularError
from zoo.tasks.recommendation.data.parquet import ParquetTable

_TIMESTAMP = "timestamp"

Columns = tuple[str, str, str | None, str | None]
"""Names of the columns of users, items, times and ratings; None for a column that is absent or not used."""


@dataclass(frozen=True, kw_only=True)
class ReaderOptions(TableOptions):
    """Options for reading the user's own files.

    Args:
        user: Name of the column of users.
        item: Name of the column of items.
        timestamp: Name of the column of times, which must exist. Default: `timestamp`, if there is such a column.
        rating: Name of the column of ratings, which is read only if `min_rating` is given.
        min_rating: Interactions with a lower rating are left out.
    """

    user: str = "user"
    item: str = "item"
    timestamp: str | None = None
    rating: str = "rating"
    min_rating: float | None = None

    def __post_init__(self) -> None:
        names = [self.user, self.item, self.timestamp or _TIMESTAMP, self.rating]
        if len(set(names)) < len(names):
            raise ConfigError(f"data.user, item, timestamp and rating are {', '.join(names)}; name four columns")


def read_interactions(path: Path | str, reading: ReaderOptions, *, titles: Path | str | None = None) -> Interactions:
    """Reads one table. A `UserWarning` reports bad rows, low ratings and columns that are not used.

    Args:
        path: CSV, TSV (also `.gz`) or Parquet file with columns of users and items (any texts), and optionally of
            timestamps (numbers or ISO dates) and ratings.
        reading: Names of the columns, and the rows that are left out.
        titles: CSV or TSV file with the columns `item`, with the ids of `path`, and `title`.

    Raises:
        DataError: The file is invalid. The message has the file, line, column and a remedy.
    """
    named = {name: f"data.{option}" for option, name in _find_required(reading).items()}
    found = interactions_of(open_table(Path(path), reading, required=named), reading)
    return found if titles is None else replace(found, titles=_titles(Path(titles), found.item_names, reading))


def open_table(path: Path, reading: ReaderOptions, *, required: Required | None = None) -> Table:
    """Opens a CSV, TSV or Parquet file, and checks its header.

    Args:
        path: Path of the file.
        reading: Names of the columns.
        required: Names of the columns that must exist. Default: those of an interaction.
    """
    required = list(_find_required(reading).values()) if required is None else required
    if is_parquet(path):
        return ParquetTable(path, required, on_bad_row=reading.on_bad_row)
    return read_table(path, required=required, on_bad_row=reading.on_bad_row, encoding=reading.encoding)


def _find_required(reading: ReaderOptions) -> dict[str, str]:
    """Returns option -> name of the column that it names, for the columns that a table of interactions must have."""
    names = {"user": reading.user, "item": reading.item, "timestamp": reading.timestamp}
    names["rating"] = None if reading.min_rating is None else reading.rating
    return {option: name for option, name in names.items() if name is not None}


def is_parquet(path: Path) -> bool:
    """Returns whether a file is read as Parquet."""
    return path.suffix.lower() == ".parquet"


def interactions_of(table: Table, reading: ReaderOptions) -> Interactions:
    """Reads the interactions of an open table."""
    time = reading.timestamp or (_TIMESTAMP if _TIMESTAMP in table.columns else None)
    columns = reading.user, reading.item, time, None if reading.min_rating is None else reading.rating
    collector = InteractionCollector(reading.min_rating)
    try:
        if isinstance(table, ParquetTable):
            table.use(columns)
            table.add_columns(collector)
        else:
            add_columns(table, collector, columns)
    except IrregularError:
        collector = InteractionCollector(reading.min_rating)
        for row in table.parse(_row_reader(collector.clock, columns)):
            collector.add_row(*row)
    found = collector.finish()
    table.bad.warn()
    table.warn_of_unused(
        columns, "an interaction has a user, an item, perhaps a timestamp, and with data.min_rating a rating"
    )
    _say_low(table, collector, len(found.items), reading)
    return found


def _row_reader(clock: Clock, columns: Columns) -> Callable[[Row], tuple[str, str, float | None, float | None]]:
    user, item, time, rating = columns

    def read(row: Row) -> tuple[str, str, float | None, float | None]:
        names = row.text(user), row.text(item)
        moment = None
        if time is not None:
            cell = row.text(time)
            try:
                moment = clock.read(cell)
            except ValueError as error:
                remedy = "Write a number such as 1041465600, or a date such as 2003-01-02T00:00:00."
                raise row.error(time, str(error), remedy) from None
        return *names, moment, None if rating is None else row.number(rating)

    return read


def _say_low(table: Table, collector: InteractionCollector, count: int, reading: ReaderOptions) -> None:
    if not collector.low:
        return
    least = f"a {reading.rating} below data.min_rating={reading.min_rating:g}"
    if not count:
        raise DataError(f"{table.path}: all {collector.low:,} interactions have {least}. Lower it.")
    warn(f"{table.path}: {collector.low:,} of {collector.low + count:,} interactions have {least}, and are left out.")


def _titles(path: Path, names: Sequence[str], reading: ReaderOptions) -> list[str]:
    """Returns the title of each item; "" where there is none."""
    from zoo.data.records import Column, Records, Schema

    columns = {"item": Column("item", "id", required=True), "title": Column("title", required=True)}
    records = Records(path, Schema(noun="title", columns=columns, usage="an item has a title", id="item"), reading)
    titles = dict(records.parse(lambda record: (record.id, record["title"])))
    without = sum(name not in titles for name in names)
    if without:
        warn(f"{path}: {without:,} of the {len(names):,} items have no title, and are shown by their ids.")
    return [titles.get(name, "") for name in names]
