"""Interactions in Parquet files: by the column, or by the row where a value is not as it should be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.data.tables import OnBadRow, Row, RowError, Table
from zoo.errors import DataError, ZooError, nearest
from zoo.tasks.recommendation.interactions import Coded, Column, Gathered, IrregularError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 20
"""At a time."""


class ParquetTable(Table):
    """A Parquet file as a table of texts, whose rows are counted from 1.

    Args:
        path: Of the file.
        required: The columns that must be there.
        on_bad_row: Whether a bad row stops the reading or is counted and left out.

    Raises:
        DataError: The file is missing, damaged or empty, or lacks or repeats a column.
        ZooError: pyarrow, which reads Parquet, is not installed.
    """

    def __init__(self, path: Path, required: Sequence[str], on_bad_row: OnBadRow) -> None:
        self._schema, rows = _opened(path)
        super().__init__(path, 0, tuple(self._schema.names), on_bad_row, "")
        self._used: Sequence[str | None] = ()
        for name in required:
            if name not in self.columns:
                offer = f"{nearest(name, self.columns)} Rename the one that is meant."
                raise DataError(f"{path}, column {name!r}: the table does not have it. {offer}")
            if self.columns.count(name) > 1:
                raise DataError(f"{path}, column {name!r}: the table has it more than once. Rename or remove one.")
        if not rows:
            raise DataError(f"{path}: the table has no rows.")

    def use(self, columns: Sequence[str | None]) -> None:
        """Which are those of the users, the items, the times and the ratings; None for what is not there.

        Raises:
            DataError: Its type is not one of those that serve.
        """
        self._used = columns
        for name, kinds in zip(columns, (_ids, _ids, _times, _ratings), strict=True):
            if name is not None:
                _check(self.path, name, self._schema.field(name).type, kinds)

    def __iter__(self) -> Iterator[Row]:
        self.skipped, self.first_skipped, self.collected, number = 0, "", 0, 0
        names = [name for name in self._used if name is not None]
        places = [self.index[name] for name in names]
        for batch in _batches(self.path, names):
            for values in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
                cells = [""] * len(self.columns)
                for place, value in zip(places, values, strict=True):
                    cells[place] = _text(value)
                number += 1
                yield Row(self, number, cells)

    def error(self, line: int, column: str | None, what: str, remedy: str) -> RowError:
        said = str(super().error(line, column, what, remedy))
        return RowError(said.replace(f"{self.path}, line ", f"{self.path}, row ", 1))

    def add_columns(self, gathered: Gathered) -> None:
        """Adds all rows at once.

        Raises:
            IrregularError: A value is not as it should be; what was gathered is of no use.
        """
        for batch in _batches(self.path, [name for name in self._used if name is not None]):
            user, item, time, rating = (None if name is None else batch.column(name) for name in self._used)
            gathered.add(_coded(user), _coded(item), _moments(time), _numbers(rating))


def _opened(path: Path) -> tuple[pa.Schema, int]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ZooError(
            'Parquet needs pyarrow: pip install "attention-zoo[parquet]", or write the table as CSV.'
        ) from error
    if not path.is_file():
        raise DataError(f"{path}: there is no such file. Check the path, which is taken from {Path.cwd()}.")
    try:
        with pq.ParquetFile(path) as file:
            return file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _batches(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS, columns=list(names), use_threads=False):
                arrays = [
                    each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in batch.columns
                ]
                arrays = [each.cast(pa.timestamp("us")) if pa.types.is_date(each.type) else each for each in arrays]
                arrays = [_to_microseconds(each) if pa.types.is_timestamp(each.type) else each for each in arrays]
                yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _to_microseconds(times: pa.Array) -> pa.Array:
    import pyarrow as pa

    return times.cast(pa.timestamp("us", tz=times.type.tz), safe=False)


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: the file is not Parquet, damaged or cut short ({str(error).splitlines()[0]}).")


def _check(path: Path, name: str, kind: pa.DataType, kinds: Any) -> None:
    import pyarrow as pa

    holds, fits = kinds(pa.types, kind.value_type if pa.types.is_dictionary(kind) else kind)
    if not fits:
        raise DataError(f"{path}, column {name!r}: its type is {kind}, where {holds} belong. Convert it.")


def _ids(types: Any, kind: pa.DataType) -> tuple[str, bool]:
    return "texts or whole numbers", _is_text(types, kind) or types.is_integer(kind)


def _times(types: Any, kind: pa.DataType) -> tuple[str, bool]:
    holds, fits = _ratings(types, kind)
    return f"{holds}, or dates", fits or types.is_timestamp(kind) or types.is_date(kind)


def _ratings(types: Any, kind: pa.DataType) -> tuple[str, bool]:
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return "numbers, or texts of them", numeric or _is_text(types, kind)


def _is_text(types: Any, kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _text(value: object) -> str:
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, date) else str(value)


def _coded(column: pa.Array) -> Coded:
    import pyarrow as pa

    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, encoded.dictionary.cast(pa.string()).to_pylist()


def _moments(column: pa.Array | None) -> Column | None:
    """Times; those of dates as the texts of the distinct ones, which `Clock` reads."""
    import pyarrow as pa

    if column is None or not pa.types.is_timestamp(column.type):
        return _numbers(column)
    codes, _ = _coded(column)
    return codes, [_text(value) for value in column.dictionary_encode().dictionary.to_pylist()]


def _numbers(column: pa.Array | None) -> Column | None:
    import pyarrow as pa

    if column is None:
        return None
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return _coded(column)
    if column.null_count:
        raise IrregularError
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    if column.type == pa.uint64() or not (np.abs(values) <= np.finfo(np.float32).max).all():  # as also of infinity, NaN
        raise IrregularError
    return values.astype(np.int64 if pa.types.is_integer(column.type) else np.float64)
