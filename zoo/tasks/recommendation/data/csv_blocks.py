"""Reads CSV and TSV files of millions of rows in blocks, with pandas' parser in C, if the files are regular."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from zoo.data.compressed import open_bytes
from zoo.data.tables import Table
from zoo.tasks.recommendation.data.interactions import InteractionCollector, IrregularError

if TYPE_CHECKING:
    import pandas as pd

_BLOCK = 1 << 24
"""Bytes of a block: about half a million rows."""
_QUOTED = {
    delimiter: re.compile(rb'(?:(?<=[%b\n])|\A)"(?:[^"\r\n]|"")*"(?=[%b\r\n])' % (delimiter, delimiter))
    for delimiter in (b",", b"\t")
}
"""A well-formed quoted cell without a line break."""


def add_columns(table: Table, collector: InteractionCollector, columns: Sequence[str | None]) -> None:
    """Adds all rows of a table.

    Args:
        table: A table of which only the header was read.
        collector: Collects the rows.
        columns: Names of the columns of users, items, times and ratings; None for a column that is absent.

    Raises:
        IrregularError: The file has a part that may be invalid, or that only `zoo.data.tables` can read. Discard
            `collector`, and read the file from the beginning with `zoo.data.tables`.
    """
    used = [name for name in columns if name is not None]
    kinds: dict[str, Any] = dict.fromkeys(used, object)
    time, total = columns[2], 0
    if time is not None:
        del kinds[time]  # inferred: int64 as long as all times are whole numbers
    with open_bytes(table.path, table.encoding) as file:
        _skip_header(file, table)
        for block in _blocks(file):
            rows = _regular_rows(block, table.delimiter.encode(), len(table.columns))
            frame = _frame(block, table, used, kinds)
            if time is not None and time not in kinds and frame[time].dtype != np.int64:
                kinds[time] = object
                frame = _frame(block, table, used, kinds)
            if len(frame) != rows:
                raise IrregularError
            found: list[Any] = [None if name is None else _column(frame[name]) for name in columns]
            collector.add(*found)
            total += rows
    if not total:
        raise IrregularError


def _frame(block: bytes, table: Table, used: list[str], kinds: dict[str, Any]) -> pd.DataFrame:
    """Parses the used columns of a block. The parser returns the same object for equal texts."""
    import pandas as pd

    return pd.read_csv(
        io.BytesIO(block),
        sep=table.delimiter,
        header=None,
        names=list(table.columns),
        usecols=used,
        dtype=kinds,
        na_filter=False,
        skip_blank_lines=False,
        low_memory=False,
    )


def _column(series: pd.Series) -> Any:
    import pandas as pd

    if series.dtype == np.int64:
        return series.to_numpy()
    codes, names = pd.factorize(series.to_numpy())
    return codes, names.tolist()


def _skip_header(file: IO[bytes], table: Table) -> None:
    line = file.readline(_BLOCK)
    if table.line != 1 or not line.endswith(b"\n") or b"\r" in line.rstrip(b"\r\n"):
        raise IrregularError


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yields the rest of the file in blocks that end with a line; blank lines at the end of the file are removed."""
    block = rest = b""
    while read := file.read(_BLOCK):
        if block:
            yield block
        block, end, rest = (rest + read).rpartition(b"\n")
        if not end:
            raise IrregularError
        block += end
    last = (block + rest).rstrip(b"\r\n")
    if last:
        yield last + b"\n"


def _regular_rows(block: bytes, delimiter: bytes, columns: int) -> int:
    """Returns the number of rows of a block.

    Raises:
        IrregularError: A row is not one line with one cell for each column, or has an invalid character or quote.
    """
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        raise IrregularError from None
    if b'"' in block:
        block = _QUOTED[delimiter].sub(b"", block)
    if b'"' in block or b"\0" in block or block.count(b"\r") != block.count(b"\r\n"):
        raise IrregularError
    characters = np.frombuffer(block, dtype=np.uint8)
    ends = characters == ord("\n")
    marks = ends[ends | (characters == ord(delimiter))]
    rows, left = divmod(len(marks), columns)
    if left or not marks.reshape(rows, columns)[:, -1].all() or int(marks.sum()) != rows:
        raise IrregularError
    return rows
