"""Reads a graph from two files, `nodes.csv` and `edges.csv`. `data/README.md` describes their format."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64
from scipy import sparse
from torch import Tensor

from zoo.data.encodings import UTF8, Encoding
from zoo.data.labels import count_label_uses, find_untrained, warn_of_similar
from zoo.data.splits import split_stratified
from zoo.data.tables import OnBadRow, Row, Table, collect_error, message, parse_number, read_table
from zoo.data.unknown_labels import UnknownLabels, read_label
from zoo.errors import DataError, join_names
from zoo.tasks.graph.graph import NONE, SPLITS, Graph, make_undirected, sparse_features

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
    required = ["id"] if labels is not None else ["id", "label"]
    table = read_table(nodes, required=required, on_bad_row=on_bad_row, encoding=encoding)
    columns = _feature_columns(table, feature_names)
    listed: set[str] = set()
    rows = list(table.parse(_node_reader(table, columns, labels, listed, unknown)))
    _warn_of_skipped(table)

    label_names = tuple(labels) if labels is not None else tuple(sorted({row.label for row in rows} - {""}))
    label_index = {name: i for i, name in enumerate(label_names)} | {"": NONE}
    label = torch.tensor([label_index[row.label] for row in rows])
    if "split" in table.columns:
        split = torch.tensor([SPLITS.get(row.split, NONE) for row in rows])
    else:
        split = torch.from_numpy(split_stratified(label.numpy(), split_seed))
    if labels is None and not table.collected:
        with collect_error():
            _check_splits(table, rows, label, split, label_names)

    if columns is None:
        features, names = _word_features(table, rows, feature_names)
    else:
        features, names = torch.from_numpy(np.stack([row.numbers for row in rows])), tuple(columns)
    ids = tuple(row.id for row in rows)
    del rows  # before the edges take memory
    pairs = _read_edges(edges, table, ids, listed, on_bad_row)
    return Graph(
        features=features,
        feature_names=names,
        edges=pairs if directed else make_undirected(pairs, len(ids)),
        labels=label,
        label_names=label_names,
        split=split,
        ids=ids,
    )


@dataclass(slots=True)
class _Node:
    line: int
    id: str
    label: str
    split: str
    numbers: np.ndarray
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
    read_table(
        table.path, required=feature_names, encoding=table.encoding
    )  # raises an error that names the missing column
    known = set(feature_names)
    unused = [name for name in others if name not in known]
    if unused:
        _warn(f"{table.path}: {join_names(unused)} not among the model's features, not used.")
    return list(feature_names)


def _node_reader(
    table: Table,
    columns: list[str] | None,
    labels: Sequence[str] | None,
    listed: set[str],
    unknown: UnknownLabels | None,
) -> Callable[[Row], _Node]:
    """Returns a function that reads a row of nodes.csv, and adds its id to `listed` even if the row is bad."""
    lines: dict[str, int] = {}
    has_label, has_split = "label" in table.columns, "split" in table.columns
    known = None if labels is None else set(labels)
    nothing = np.empty(0, dtype=np.float32)

    def read(row: Row) -> _Node:
        listed.add(row.cells[table.index["id"]].strip())
        label = read_label(row, "label", known, unknown, row.text("id", empty=True)) if has_label else ""
        split = row.choice("split", SPLITS, empty=True) if has_split else ""
        if split and not label and known is None:
            what = f"the node is in split {split!r} and has no label"
            raise row.error("label", what, "Fill it in, or leave the split empty.")
        numbers = nothing if columns is None else row.numbers(columns)
        words = _words(row) if columns is None else {}
        name = row.text("id")
        if name in lines:
            what = f"{name!r} is already the id of line {lines[name]}"
            raise row.error("id", what, "Rename or remove one of the two.")
        lines[name] = row.line
        return _Node(row.line, name, label, split, numbers, words)

    return read


def _words(row: Row) -> dict[str, float]:
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
    table: Table, rows: list[_Node], feature_names: Sequence[str] | None
) -> tuple[Float[Tensor, "n f"], tuple[str, ...]]:
    names = tuple(feature_names) if feature_names is not None else tuple(sorted({w for row in rows for w in row.words}))
    if not names:
        raise DataError(message(table.path, None, _SPARSE, "no node has a word", "Write 'word:count' pairs there."))
    index = {name: i for i, name in enumerate(names)}
    known = [[(index[word], count) for word, count in row.words.items() if word in index] for row in rows]
    unknown = {word for row in rows for word in row.words if word not in index}
    if unknown:
        left_out = sum(len(row.words) for row in rows) - sum(len(pairs) for pairs in known)
        named = join_names(sorted(unknown))
        _warn(f"{table.path}: left out {left_out} word:count pairs, {named} not among the model's words.")
    flat = list(chain.from_iterable(known))
    column = np.array([i for i, _ in flat], dtype=np.int64)
    value = np.array([count for _, count in flat], dtype=np.float32)
    start = np.concatenate([[0], np.cumsum([len(pairs) for pairs in known])])
    return sparse_features(sparse.csr_matrix((value, column, start), shape=(len(rows), len(names)))), names


def _read_edges(
    path: Path | str, nodes: Table, ids: tuple[str, ...], listed: set[str], on_bad_row: OnBadRow
) -> Int64[Tensor, "2 e"]:
    table = read_table(path, required=["source", "target"], on_bad_row=on_bad_row, encoding=nodes.encoding)
    unused = [name for name in table.columns if name not in ("source", "target")]
    if unused:
        _warn(f"{table.path}: {join_names(unused)} not used; an edge has a source and a target.")
    index = {name: i for i, name in enumerate(ids)}

    def read(row: Row) -> tuple[int, int]:
        source, target = row.text("source"), row.text("target")
        try:
            return index[source], index[target]
        except KeyError:
            if table.collects() and source in listed and target in listed:  # the row of that node is bad, and reported
                row.is_bad = True
                return 0, 0
            column, name = ("target", target) if source in index else ("source", source)
            what = f"{name!r} is not the id of a node in {nodes.path}"
            raise row.error(column, what, "Add a row for that node, or remove the edge.") from None

    pairs = np.array(list(table.parse(read)), dtype=np.int64)
    _warn_of_skipped(table)
    return torch.from_numpy(pairs).t().contiguous()


def _check_splits(table: Table, rows: list[_Node], label: Tensor, split: Tensor, label_names: tuple[str, ...]) -> None:
    if not label_names:
        raise DataError(message(table.path, None, "label", "no node has a label", "Fill it in where it is known."))
    uses = count_label_uses(label_names, label.numpy(), split.numpy())
    for use in find_untrained(uses):
        what = f"{use.name!r} is seen in {use.where} only, and never in train"
        remedy = "Put a node with this label into train, or take the label out."
        with collect_error():
            raise DataError(message(table.path, rows[use.first].line, "label", what, remedy))
    for word, number in SPLITS.items():
        if not (split == number).any():
            given = "split" in table.columns
            remedy = "Write it into some cells." if given else "Label more nodes, or add a column 'split' yourself."
            raise DataError(message(table.path, None, "split", f"no node is in {word!r}", remedy))
    warn_of_similar(table.path, uses)


def _warn_of_skipped(table: Table) -> None:
    if table.skipped:
        _warn(table.report())


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=2)
