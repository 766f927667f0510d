"""Reads interactions from Parquet files: whole columns at once, or row by row to find an invalid value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.data.tables import OnBadRow, Required, Row, RowError, Table, check_columns
from zoo.errors import DataError, ZooError
from zoo.tasks.recommendation.data.interactions import Coded, Column, InteractionCollector, IrregularError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 20
"""Rows of a batch."""


class ParquetTable(Table):
    """A Parquet file as a table of texts. Its rows are counted from 1.

    Args:
        path: Path of the file.
        required: Names of the columns that must exist.
        on_bad_row: Whether a bad row is an error, or is left out and counted.

    Raises:
        DataError: The file is missing, damaged or empty, or lacks or repeats a column.
        ZooError: pyarrow is not installed.
    """

    def __init__(self, path: Path, required: Required, on_bad_row: OnBadRow) -> None:
        self._schema, rows = _open(path)
        super().__init__(path, 0, tuple(self._schema.names), on_bad_row, "")
        self._used: Sequence[str | None] = ()
        check_columns(path, None, self.columns, required, "the table does not have it")
        for name in required:
            if self.columns.count(name) > 1:
                raise DataError(f"{path}, column {name!r}: the table has it more than once. Rename or remove one.")
        if not rows:
            raise DataError(f"{path}: the table has no rows.")

    def use(self, columns: Sequence[str | None]) -> None:
        """Selects the columns that are read, and checks their types.

        Args:
            columns: Names of the columns of users, items, times and ratings; None for a column that is absent.

        Raises:
            DataError: A column has a type that does not fit.
        """
        self._used = columns
        for name, kinds in zip(columns, (_ids, _ids, _times, _ratings), strict=True):
            if name is not None:
                _check(self.path, name, self._schema.field(name).type, kinds)

    def __iter__(self) -> Iterator[Row]:
        number = self._start()
        names = [name for name in self._used if name is not None]
        indices = [self.index[name] for name in names]
        for batch in _batches(self.path, names):
            for texts in zip(*map(_texts, batch.columns), strict=True):
                number += 1
                cells = [""] * len(self.columns)
                for index, name, text in zip(indices, names, texts, strict=True):
                    if text is None:
                        remedy = "Write the table anew with texts in UTF-8."
                        self.bad.add(self.error(number, name, "the text is not UTF-8", remedy))
                        break
                    cells[index] = text
                else:
                    yield Row(self, number, cells)

    def error(self, line: int, column: str | None, what: str, remedy: str) -> RowError:
        said = str(super().error(line, column, what, remedy))
        return RowError(said.replace(f"{self.path}, line ", f"{self.path}, row ", 1))

    def add_columns(self, collector: InteractionCollector) -> None:
        """Adds all rows, a batch of columns at a time.

        Raises:
            IrregularError: A value may be invalid. Discard `collector`, and read the table row by row.
        """
        for batch in _batches(self.path, [name for name in self._used if name is not None]):
            user, item, time, rating = (None if name is None else batch.column(name) for name in self._used)
            collector.add(_encode(user), _encode(item), _moments(time), _numbers(rating))


def _open(path: Path) -> tuple[pa.Schema, int]:
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
        raise _make_error(path, error) from error


def _batches(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS, columns=list(names), use_threads=False):
                arrays = [
                    each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in batch.columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
    except (pa.ArrowException, OSError) as error:
        raise _make_error(path, error) from error


def _make_error(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: the file is not Parquet, damaged or cut short ({str(error).splitlines()[0]}).")


def _check(path: Path, name: str, kind: pa.DataType, kinds: Any) -> None:
    import pyarrow as pa

    holds, fits = kinds(pa.types, kind.value_type if pa.types.is_dictionary(kind) else kind)
    if not fits:
        raise DataError(f"{path}, column {name!r}: its type is {kind}, but it must have {holds}. Convert it.")


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


def _texts(column: pa.Array) -> Sequence[str | None]:
    """Returns each value as a CSV file would have it, with "" for a null; None for a text that is not UTF-8."""
    if _is_date(column.type):
        return _dates(column)
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:
        return [_decode(each) for each in column]
    return ["" if value is None else str(value) for value in values]


def _decode(text: pa.Scalar) -> str | None:
    try:
        return text.as_py() or ""
    except UnicodeDecodeError:
        return None


def _is_date(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _dates(column: pa.Array) -> list[str]:
    """Returns dates in ISO format, also of years after 9999. Parquet stores times in UTC, whatever their zone."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        unit, numbers = column.type.unit, column.cast(pa.int64())
    else:
        is_days = pa.types.is_date32(column.type)
        unit, numbers = ("D", column.cast(pa.int32())) if is_days else ("ms", column.cast(pa.int64()))
    moments = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(f"M8[{unit}]")
    known = column.is_valid().to_numpy(zero_copy_only=False)
    return [str(moment) if is_known else "" for moment, is_known in zip(moments, known, strict=True)]


def _encode(column: pa.Array) -> Coded:
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    names = []
    for text in _texts(encoded.dictionary):
        if text is None:
            raise IrregularError
        names.append(text)
    return codes, names


def _moments(column: pa.Array | None) -> Column | None:
    """Returns times as numbers; dates are returned as coded texts, which `Clock` reads."""
    return _numbers(column) if column is None or not _is_date(column.type) else _encode(column)


def _numbers(column: pa.Array | None) -> Column | None:
    import pyarrow as pa

    if column is None:
        return None
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return _encode(column)
    if column.null_count:
        raise IrregularError
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    # The comparison is also false for infinity and NaN.
    if column.type == pa.uint64() or not (np.abs(values) <= np.finfo(np.float32).max).all():
        raise IrregularError
    return values.astype(np.int64 if pa.types.is_integer(column.type) else np.float64)
