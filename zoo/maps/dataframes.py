"""Converts maps to tables with one row for each head and pair, in pieces, since a map may have millions of edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from zoo.attention.recording.attention_map import MEAN
from zoo.errors import DataError, ZooError
from zoo.io import open_atomic_bytes
from zoo.maps.labelled_map import LabelledMap, Pairs

if TYPE_CHECKING:
    import pandas as pd

Format = Literal["csv", "parquet"]
ROWS = 1 << 18
"""Maximum number of rows of a piece."""


def frames(found: LabelledMap, *, rows: int = ROWS, most_keys: int | None = None) -> Iterator[pd.DataFrame]:
    """Yields the table of a map in pieces of at most `rows`; each head has at least one piece, which may be empty.

    The columns are layer and head, followed for edges by source, target, weight and is_self_loop, and for dense maps by
    query, key, weight and, as labels may repeat, query_position and key_position. Maps with steps have step (and
    step_position) before these. Pairs that are not permitted are left out. The head is `mean` if heads were averaged.
    Gates have layer, their axes (channel, or height and width) and weight.

    Args:
        found: The map.
        rows: Maximum number of rows of a piece.
        most_keys: Maximum number of rows of a query, which are those of its heaviest keys. Default: all.
    """
    import pandas as pd

    categories = {id(labels): _categories(labels) for labels in {id(x): x for x in found.labels.values()}.values()}
    names = {axis: categories[id(labels)] for axis, labels in found.labels.items()}
    for head in (None,) if found.is_gate else found.heads:
        pairs = found.pairs(head)
        if most_keys is not None:
            pairs = pairs.select(heaviest(pairs, most_keys))
        for start in range(0, max(len(pairs.key), 1), rows):
            piece = slice(start, start + rows)
            key = pairs.key[piece]
            positions = {
                **_positions(found, found.query_axes, pairs.query[piece]),
                **_positions(found, found.key_axes, key),
            }
            if found.has_edges:  # source before target, as in every list of edges
                positions["target"] = positions.pop("target")
            columns: dict[str, Any] = {"layer": found.layer}
            if head is not None:
                columns["head"] = "mean" if head == MEAN else head
            columns |= {axis: _to_categorical(names[axis], position) for axis, position in positions.items()}
            columns["weight"] = pairs.weights[piece].numpy()
            if found.has_edges:
                columns["is_self_loop"] = (positions["source"] == positions["target"]) & found.attends_to_itself
            elif not found.is_gate:
                columns |= {f"{axis}_position": position for axis, position in positions.items()}
            yield pd.DataFrame(columns, index=range(start, start + len(key)))


def heaviest(pairs: Pairs, most: int) -> Int[Tensor, " k"]:
    """Returns the indices of the heaviest pairs of each query, at most so many of each, in their order."""
    order = pairs.weights.argsort(descending=True, stable=True)
    order = order[pairs.query[order].argsort(stable=True)]
    query = pairs.query[order]
    first = torch.searchsorted(query, query)
    return order[torch.arange(len(order)) - first < most].sort().values


def query_columns(found: LabelledMap, query: Int[Tensor, " n"]) -> dict[str, pd.Categorical]:
    """Returns the labels of queries along each of their axes."""
    positions = _positions(found, found.query_axes, query)
    return {axis: _to_categorical(_categories(found.labels[axis]), position) for axis, position in positions.items()}


def concat(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenates tables. Labels stay categorical, since a large graph repeats few labels in many rows."""
    import pandas as pd

    parts = list(parts)
    labels = {name for part in parts for name in part.columns if isinstance(part[name].dtype, pd.CategoricalDtype)}
    for name in labels:
        holders = [i for i, part in enumerate(parts) if name in part.columns]
        if all(parts[i][name].dtype == parts[holders[0]][name].dtype for i in holders):
            continue
        union = pd.api.types.union_categoricals([parts[i][name] for i in holders]).categories
        for i in holders:
            parts[i] = parts[i].assign(**{name: parts[i][name].cat.set_categories(union)})
    return pd.concat(parts, ignore_index=True)


def write(pieces: Iterable[pd.DataFrame], path: Path | str, *, format: Format | None = None) -> None:
    """Writes a table piece by piece; the file gets its name when it is complete.

    Args:
        pieces: Pieces of the table.
        path: Path of the file.
        format: File format. Default: by the suffix of the path.

    Raises:
        DataError: The format is unknown, or the file cannot be written.
        ZooError: The format is Parquet, and pyarrow is not installed.
    """
    path = Path(path)
    chosen = format or path.suffix.removeprefix(".").lower()
    if chosen not in ("csv", "parquet"):
        raise DataError(f"{path}: tables are written as csv or parquet, not {chosen or 'without an ending'!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic_bytes(path) as file:
            (_write_csv if chosen == "csv" else _write_parquet)(pieces, file)
    except OSError as error:
        raise DataError(f"{path}: the table cannot be written ({error.strerror or error})") from error


def _write_csv(pieces: Iterable[pd.DataFrame], file: BinaryIO) -> None:
    for number, piece in enumerate(pieces):
        piece.to_csv(file, index=False, header=number == 0, encoding="utf-8")


def _write_parquet(pieces: Iterable[pd.DataFrame], file: BinaryIO) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ZooError(
            'Parquet needs pyarrow: pip install "attention-zoo[parquet]", or write the table as CSV.'
        ) from error
    writer = None
    try:
        for piece in pieces:
            table = pa.Table.from_pandas(piece, preserve_index=False)
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table.cast(writer.schema))
    finally:
        if writer is not None:
            writer.close()


def _positions(found: LabelledMap, axes: Sequence[str], number: Int[Tensor, " n"]) -> dict[str, np.ndarray]:
    """Converts indices into the flattened axes to an index along each axis."""
    sizes = [len(found.labels[axis]) for axis in axes]
    indices = torch.unravel_index(number, sizes) if len(sizes) > 1 else (number,) * len(sizes)
    return {axis: index.numpy() for axis, index in zip(axes, indices, strict=True)}


def _categories(labels: Sequence[str]) -> tuple[Any, np.ndarray]:
    """Returns the dtype of the distinct labels, and the code of the label at each position."""
    import pandas as pd

    number: dict[str, int] = {}
    codes = np.array([number.setdefault(label, len(number)) for label in labels], dtype=np.int32)
    return pd.CategoricalDtype(pd.Index(list(number), dtype=object)), codes


def _to_categorical(names: tuple[Any, np.ndarray], position: np.ndarray) -> pd.Categorical:
    import pandas as pd

    dtype, codes = names
    return pd.Categorical.from_codes(codes[position], dtype=dtype)
