"""Reads a graph from two files, `nodes.csv` and `edges.csv`. `data/README.md` describes their format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64
from scipy import sparse
from torch import Tensor

from zoo.data.encodings import UTF8, Encoding
from zoo.data.json_lines import open_table
from zoo.data.records import Column, Record, Records, Schema, assign_splits, check_labels
from zoo.data.tables import OnBadRow, Row, Table, TableOptions, collect_error, message, parse_number
from zoo.data.unknown_labels import UnknownLabels
from zoo.errors import DataError, join_names, warn
from zoo.tasks.graph.graph import NONE, Graph, make_undirected, sparse_features

_RESERVED = ("id", "label", "split")
_SPARSE = "features"


def read_graph(
    nodes: Path | str,
    edges: Path | str,
    *,
    directed: bool = False,
    on_bad_row: OnBadRow = "error",
    encoding: Encoding = UTF8,
    split_seed: int = 0,
    labels: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    unknown: UnknownLabels | None = None,
) -> Graph:
    """Reads a graph; a `UserWarning` names the rows, words and columns that are not used.

    Args:
        nodes: File with the columns `id`, `label` (empty if unknown), optionally `split` (train, val, test or empty),
            and the features: either all other columns, numeric, or one column `features` of `word:count` pairs.
        edges: File with the columns `source` and `target`, which hold node ids.
        directed: If True, a row is one edge from source to target. If False, it is an edge in both directions, and
            repeated rows count once, whatever their direction.
        on_bad_row: Policy for bad rows: an error, or left out.
        encoding: Encoding of both files.
        split_seed: Seed of the split if there is no column `split`: the nodes of each label are shuffled and split
            60/20/20.
        labels: Labels of a trained model, in its order. The label column may then be missing, and labels and splits may
            have no nodes.
        unknown: Where labels go that a trained model does not have. Default: they are errors.
        feature_names: Features of a trained model, in its order, which are matched by name. A missing numeric column
            is an error; a word that the model does not know is left out.

    Raises:
        DataError: A file is not as described. The message has the file, line, column and a remedy.
    """
    schema = Schema(
        noun="node",
        columns={
            "id": Column("id", "id", required=True),
            "label": Column("label", "label", required=labels is None),
            "split": Column("split", "split"),
        },
    )
    options = TableOptions(on_bad_row=on_bad_row, encoding=encoding)
    known = None if labels is None else set(labels)
    records = Records(nodes, schema, options, known=known, unknown=unknown)
    columns = _feature_columns(records.table, feature_names)
    records.number_columns = columns or ()
    rows = list(records.parse(_make_node))

    label_names = tuple(labels) if labels is not None else tuple(sorted({row.label for row in rows} - {""}))
    label_index = {name: i for i, name in enumerate(label_names)} | {"": NONE}
    label = np.array([label_index[row.label] for row in rows], dtype=np.int64)
    split = assign_splits(
        records.path, "node", [row.split for row in rows], seed=split_seed, labels=label, checks=False
    )
    if labels is None and records.is_complete:
        locate = lambda number: (records.path, rows[number].line)  # noqa: E731
        with collect_error():
            check_labels(
                records.path,
                "node",
                label_names,
                label,
                split,
                locate=locate,
                column="label",
                min_labels=1,
                are_scored=False,
            )

    if columns is None:
        features, names = _word_features(records.path, rows, feature_names)
    else:
        numbers = [row.numbers for row in rows if row.numbers is not None]
        features, names = torch.from_numpy(np.stack(numbers)), tuple(columns)
    ids = tuple(row.id for row in rows)
    del rows  # before the edges take memory
    pairs = _read_edges(edges, records, ids, options)
    return Graph(
        features=features,
        feature_names=names,
        edges=pairs if directed else make_undirected(pairs, len(ids)),
        labels=torch.from_numpy(label),
        label_names=label_names,
        split=torch.from_numpy(split),
        ids=ids,
    )


@dataclass(slots=True)
class _Node:
    line: int
    id: str
    label: str
    split: int
    numbers: np.ndarray | None
    words: dict[str, float]


def _feature_columns(table: Table, feature_names: Sequence[str] | None) -> list[str] | None:
    """Returns the names of the numeric feature columns, or None if the features are a column of words."""
    others = [name for name in table.columns if name not in _RESERVED]
    if _SPARSE in others:
        if len(others) > 1:
            extra = next(name for name in others if name != _SPARSE)
            what = f"there are words in column {_SPARSE!r} and other features besides"
            remedy = f"Write it as a word ('{extra}:0.5'), or remove the column."
            raise DataError(message(table.path, table.line, extra, what, remedy))
        return None
    if not others:
        what = "there are no features"
        remedy = f"Add numeric columns, or one column {_SPARSE!r} with 'word:count' pairs."
        raise DataError(message(table.path, table.line, None, what, remedy))
    if feature_names is None:
        return others
    # raises an error that names the missing column
    open_table(table.path, required=feature_names, on_bad_row="error", encoding=table.encoding)
    known = set(feature_names)
    unused = [name for name in others if name not in known]
    if unused:
        warn(f"{table.path}: {join_names(unused)} not among the model's features, not used.")
    return list(feature_names)


def _make_node(record: Record) -> _Node:
    words = {} if record.numbers is not None else _read_words(record.row)
    return _Node(record.line, record.id, record["label"], record.split, record.numbers, words)


def _read_words(row: Row) -> dict[str, float]:
    """Returns the word counts of a cell such as `graph:2 attention`; counts of repeated words are added."""
    counts: dict[str, float] = {}
    for pair in row.text(_SPARSE, empty=True).split():
        word, _, count = pair.rpartition(":") if ":" in pair else (pair, "", "1")
        try:
            value = parse_number(count)
        except ValueError as error:
            raise row.error(_SPARSE, f"in {pair!r}, {error}", "Write a word as word:count, or alone.") from None
        if not word:
            raise row.error(_SPARSE, f"{pair!r} names no word", "Write a word as word:count, or alone.")
        counts[word] = counts.get(word, 0.0) + value
    return counts


def _word_features(
    path: Path, rows: list[_Node], feature_names: Sequence[str] | None
) -> tuple[Float[Tensor, "n f"], tuple[str, ...]]:
    names = tuple(feature_names) if feature_names is not None else tuple(sorted({w for row in rows for w in row.words}))
    if not names:
        raise DataError(message(path, None, _SPARSE, "no node has a word", "Write 'word:count' pairs there."))
    index = {name: i for i, name in enumerate(names)}
    known = [[(index[word], count) for word, count in row.words.items() if word in index] for row in rows]
    unknown = {word for row in rows for word in row.words if word not in index}
    if unknown:
        left_out = sum(len(row.words) for row in rows) - sum(len(pairs) for pairs in known)
        named = join_names(sorted(unknown))
        warn(f"{path}: left out {left_out} word:count pairs, {named} not among the model's words.")
    flat = list(chain.from_iterable(known))
    column = np.array([i for i, _ in flat], dtype=np.int64)
    value = np.array([count for _, count in flat], dtype=np.float32)
    start = np.concatenate([[0], np.cumsum([len(pairs) for pairs in known])])
    return sparse_features(sparse.csr_matrix((value, column, start), shape=(len(rows), len(names)))), names


def _read_edges(path: Path | str, nodes: Records, ids: tuple[str, ...], options: TableOptions) -> Int64[Tensor, "2 e"]:
    columns = {name: Column(name, required=True) for name in ("source", "target")}
    schema = Schema(noun="edge", columns=columns, usage="an edge has a source and a target")
    records = Records(path, schema, options)
    index = {name: i for i, name in enumerate(ids)}

    def make(record: Record) -> tuple[int, int]:
        source, target = record["source"], record["target"]
        try:
            return index[source], index[target]
        except KeyError:
            if {source, target} <= nodes.ids:  # the row of that node is bad, and reported
                record.row.is_bad = True
                return 0, 0
            column, name = ("target", target) if source in index else ("source", source)
            problem = f"{name!r} is not the id of a node in {nodes.path}"
            raise record.error(column, problem, "Add a row for that node, or remove the edge.") from None

    pairs = np.array(list(records.parse(make)), dtype=np.int64)
    return torch.from_numpy(pairs).t().contiguous()
