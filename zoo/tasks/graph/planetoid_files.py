"""Cora, Citeseer and Pubmed as the authors of Planetoid published them (Yang et al. 2016, arXiv 1603.08861).

A data set has eight files `ind.<name>.*`: features of the training nodes (x), of all nodes but the test nodes (allx)
and of the test nodes (tx), their one-hot labels (y, ally, ty), an adjacency list (graph), and the node numbers of the
test rows (test.index). All but the last are pickles, which can run any code when they are loaded. They are therefore
read by an unpickler that admits arrays, SciPy's matrices and plain containers, and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from scipy import sparse

from zoo.data.download import find_published, verify_published
from zoo.data.restricted_pickle import SavedArray, unpickle
from zoo.errors import ConfigError, DataError, did_you_mean
from zoo.tasks.graph.graph import NONE, TEST, TRAIN, VAL, Graph, make_undirected, row_normalised, sparse_features

_SOURCE = "https://github.com/kimiyoung/planetoid/raw/master/data"
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_VAL_NODES = 500


@dataclass(frozen=True)
class _Published:
    """Sizes by which published files are recognised, because their hashes are not known."""

    folder: str
    nodes: int
    edges: int  # undirected, without repetitions and self-loops
    features: int
    classes: int
    train: int
    test: int
    label_names: tuple[str, ...] = ()


_SETS = {
    "cora": _Published(
        folder="Cora",
        nodes=2708,
        edges=5278,
        features=1433,
        classes=7,
        train=140,
        test=1000,
        # The files have class numbers only. Names are matched by the published sizes of the classes.
        label_names=(
            "Theory",
            "Reinforcement_Learning",
            "Genetic_Algorithms",
            "Neural_Networks",
            "Probabilistic_Methods",
            "Case_Based",
            "Rule_Learning",
        ),
    ),
    "citeseer": _Published("CiteSeer", nodes=3327, edges=4552, features=3703, classes=6, train=120, test=1000),
    "pubmed": _Published("PubMed", nodes=19717, edges=44324, features=500, classes=3, train=60, test=1000),
}


def read_planetoid(root: Path | str, name: str, *, cache: Path | str | None = None) -> Graph:
    """Reads a data set with its public split and row-normalised features; downloads missing files.

    Args:
        root: Folder of data sets; the files are in `<root>/planetoid/<Cora|CiteSeer|PubMed>/raw`.
        name: `cora`, `citeseer` or `pubmed`.
        cache: A second folder that is searched for files, and receives downloads if `root` is not writable.

    Raises:
        OfflineError: Files are missing and cannot be downloaded.
        DataError: A file is damaged, is not the published one, or is a pickle of other types.
    """
    if name not in _SETS:
        raise ConfigError(f"There is no Planetoid set {name!r}. {did_you_mean(name, _SETS)}")
    published = _SETS[name]
    names = {part: f"ind.{name}.{part}" for part in _PARTS}
    folders = [Path(base) / "planetoid" / published.folder / "raw" for base in (root, cache) if base is not None]
    files, downloaded = find_published(names.values(), folders, source=_SOURCE)
    paths = {part: files[names[part]] for part in _PARTS}
    try:
        return _decode(paths, published)
    except DataError as error:
        for path in downloaded:  # the next attempt would read them again
            path.unlink(missing_ok=True)
        kept = " The files that were downloaded just now were not kept." if downloaded else ""
        raise DataError(f"{error}{kept}") from error


def _decode(paths: dict[str, Path], published: _Published) -> Graph:
    features = {part: _matrix(paths[part]) for part in ("x", "tx", "allx")}
    one_hot = {part: _labels(paths[part]) for part in ("y", "ty", "ally")}
    test = _indices(paths["test.index"])
    source, target = _adjacency(paths["graph"], published.nodes)

    known = features["allx"].shape[0]  # nodes 0 .. known-1; the test nodes come after them, in the order of test.index
    width, classes = published.features, published.classes
    shapes = {
        "x": (published.train, width),
        "tx": (published.test, width),
        "allx": (known, width),
        "y": (published.train, classes),
        "ty": (published.test, classes),
        "ally": (known, classes),
    }
    for part, matrix in {**features, **one_hot}.items():
        verify_published(
            matrix.shape == shapes[part], paths[part], f"it has the shape {matrix.shape}, not {shapes[part]}"
        )
    fits = len(test) == published.test == len(np.unique(test)) and known <= test.min() and test.max() < published.nodes
    verify_published(fits, paths["test.index"], f"it does not name {published.test} nodes after the first {known}")
    verify_published(
        published.train + _VAL_NODES <= known, paths["allx"], "there are too few nodes for the validation split"
    )

    # Citeseer's isolated test nodes are missing from test.index. They get no features, no label and no split.
    row = np.full(published.nodes, known + published.test)
    row[:known] = np.arange(known)
    row[test] = known + np.arange(published.test)
    nothing = sparse.csr_matrix((1, width))
    stacked = sparse.vstack([features["allx"], features["tx"], nothing], format="csr")[row]
    one_hots = np.concatenate([one_hot["ally"], one_hot["ty"], np.zeros((1, classes))])[row]
    labels = np.where(one_hots.any(1), one_hots.argmax(1), NONE)
    split = np.full(published.nodes, NONE)
    split[: published.train] = TRAIN
    split[published.train : published.train + _VAL_NODES] = VAL
    split[test] = TEST
    verify_published((labels[split != NONE] != NONE).all(), paths["ally"], "a node of the public split has no label")

    loops = source == target
    edges = make_undirected(torch.from_numpy(np.stack([source[~loops], target[~loops]])), published.nodes)
    what = f"it has {edges.shape[1] // 2} undirected edges, not {published.edges}"
    verify_published(edges.shape[1] == 2 * published.edges, paths["graph"], what)
    return Graph(
        features=row_normalised(sparse_features(stacked)),
        feature_names=tuple(f"word {i}" for i in range(width)),
        edges=edges,
        labels=torch.from_numpy(labels),
        label_names=published.label_names or tuple(f"class {i}" for i in range(classes)),
        split=torch.from_numpy(split),
        ids=tuple(str(i) for i in range(published.nodes)),
    )


def _matrix(path: Path) -> sparse.csr_matrix:
    saved = _unpickle(path)
    state = saved.state if isinstance(saved, _SavedMatrix) else {}
    arrays = [state.get(key) for key in ("data", "indices", "indptr")]
    shape = state.get("_shape", state.get("shape"))
    plain = all(isinstance(array, np.ndarray) and array.ndim == 1 for array in arrays)
    verify_published(plain and _is_shape(shape), path, "it does not hold a sparse matrix of numbers")
    try:
        matrix = sparse.csr_matrix(tuple(arrays), shape=shape)
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: the sparse matrix in it is damaged ({error}). Remove the file.") from error
    verify_published(np.isfinite(matrix.data).all(), path, "a feature is not finite")
    return matrix


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple) and len(shape) == 2 and all(type(size) is int and size >= 0 for size in shape)


def _labels(path: Path) -> np.ndarray:
    saved = _unpickle(path)
    one_hot = saved.array if isinstance(saved, SavedArray) else np.empty(0)
    verify_published(one_hot.ndim == 2, path, "it does not hold a table of numbers")
    ones = np.isin(one_hot, (0, 1)).all() and (one_hot.sum(1) <= 1).all()
    verify_published(ones, path, "a row is not a one-hot label")
    return one_hot


def _indices(path: Path) -> np.ndarray:
    try:
        return np.array([int(line) for line in path.read_text(encoding="ascii").split()])
    except ValueError as error:
        raise DataError(f"{path}: this is not a list of node numbers ({error}). Remove the file.") from error


def _adjacency(path: Path, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    graph = _unpickle(path)
    lists = isinstance(graph, dict) and all(isinstance(neighbours, list) for neighbours in graph.values())
    verify_published(lists, path, "it does not hold an adjacency list")
    pairs = [(target, source) for target, neighbours in graph.items() for source in neighbours]
    are_numbers = all(type(target) is int and type(source) is int for target, source in pairs)
    verify_published(bool(pairs) and are_numbers, path, "the nodes are not numbers")
    target, source = np.array(pairs).T
    verify_published(min(target.min(), source.min()) >= 0, path, "a node number is negative")
    verify_published(
        max(target.max(), source.max()) < nodes, path, f"a node number is beyond the last of {nodes} nodes"
    )
    return source, target


def _unpickle(path: Path) -> Any:
    with open(path, "rb") as file:
        return unpickle(file, path, _KNOWN)


class _SavedMatrix:
    """Stands in for SciPy's matrix and keeps its arrays, so that they are checked before SciPy uses them."""

    state: Mapping[str, Any] = MappingProxyType({})

    def __setstate__(self, state: Any) -> None:
        self.state = {key: value.array if isinstance(value, SavedArray) else value for key, value in state.items()}


_KNOWN: Mapping[tuple[str, str], Any] = {
    **{(module, "csr_matrix"): _SavedMatrix for module in ("scipy.sparse.csr", "scipy.sparse._csr")},
    ("collections", "defaultdict"): defaultdict,
    **{(module, "list"): list for module in ("__builtin__", "builtins")},
}
