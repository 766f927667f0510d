"""Cora, Citeseer and Pubmed as the authors of Planetoid published them (Yang et al. 2016, arXiv 1603.08861).

A set is eight files `ind.<name>.*`: the features of the labelled, of all but the test, and of the test nodes (x, allx,
tx), their one-hot labels (y, ally, ty), an adjacency list (graph), and which nodes the test rows are (test.index). All
but the last are pickles, and a pickle can run any code: these are read by an unpickler that knows arrays, SciPy's
matrices and plain containers, and refuses everything else.
"""

from __future__ import annotations

import os
import pickle
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy import sparse

from zoo.data.download import fetch
from zoo.errors import ConfigError, DataError, OfflineError, nearest
from zoo.tasks.graph.graph import NONE, TEST, TRAIN, VAL, Graph, row_normalised, sparse_features, undirected

_SOURCE = "https://github.com/kimiyoung/planetoid/raw/master/data"
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_VAL_NODES = 500


@dataclass(frozen=True)
class _Published:
    """What the published files hold, by which they are recognised: their hashes are not known here."""

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
        # The files have numbers only. Each class is recognised by its size, which is published for the named classes.
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
    """Reads one of the sets with its public split, features row-normalised; downloads the files that are missing.

    Args:
        root: the folder of the data sets; the files are in `<root>/planetoid/<Cora|CiteSeer|PubMed>/raw`.
        name: `cora`, `citeseer` or `pubmed`.
        cache: where files are looked for too, and downloaded to when `root` cannot be written.

    Raises:
        OfflineError: files are missing and cannot be downloaded.
        DataError: a file is damaged, is not the published one, or is a pickle of something else.
    """
    if name not in _SETS:
        raise ConfigError(f"There is no Planetoid set {name!r}. {nearest(name, _SETS)}")
    published = _SETS[name]
    paths, downloaded = _find(Path(root), name, None if cache is None else Path(cache))
    try:
        return _decode(paths, published)
    except DataError as error:
        for path in downloaded:  # they would stand in the way of the next attempt
            path.unlink(missing_ok=True)
        kept = " The files that were downloaded just now were not kept." if downloaded else ""
        raise DataError(f"{error}{kept}") from error


def _find(root: Path, name: str, cache: Path | None) -> tuple[dict[str, Path], list[Path]]:
    """The path of each part, and which of them had to be downloaded."""
    folders = [base / "planetoid" / _SETS[name].folder / "raw" for base in (root, cache) if base is not None]
    paths, missing = {}, []
    for part in _PARTS:
        candidates = [folder / f"ind.{name}.{part}" for folder in folders]
        found = next((path for path in candidates if path.is_file()), None)
        if found is None:
            missing.append(part)
        else:
            paths[part] = found
    if not missing:
        return paths, []

    files = ", ".join(f"ind.{name}.{part}" for part in missing)
    target = next((folder for folder in folders if _writable(folder)), None)
    if target is None:
        raise DataError(
            f"{folders[0]}: {_SETS[name].folder} lacks {files}, and the folder cannot be written to download them. "
            f"Place them there (they are published at {_SOURCE}), or set $ZOO_DATA or paths.data to another folder."
        )
    for part in missing:
        paths[part] = target / f"ind.{name}.{part}"
        try:
            fetch(f"{_SOURCE}/ind.{name}.{part}", paths[part], sha256=None)
        except OfflineError as error:
            raise OfflineError(f"{error} These files are wanted there: {files}.") from error
    return paths, [paths[part] for part in missing]


def _writable(folder: Path) -> bool:
    """Whether files can be made in a folder that need not exist yet."""
    existing = next(parent for parent in (folder, *folder.parents) if os.path.exists(parent))
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


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
        _expect(matrix.shape == shapes[part], paths[part], f"it has the shape {matrix.shape}, not {shapes[part]}")
    fits = len(test) == published.test == len(np.unique(test)) and known <= test.min() and test.max() < published.nodes
    _expect(fits, paths["test.index"], f"it does not name {published.test} nodes after the first {known}")
    _expect(published.train + _VAL_NODES <= known, paths["allx"], "there are too few nodes for the validation split")

    # Citeseer's isolated test nodes are missing from test.index: they get no features, no label, and are in no split.
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
    _expect((labels[split != NONE] != NONE).all(), paths["ally"], "a node of the public split has no label")

    loops = source == target
    edges = undirected(torch.from_numpy(np.stack([source[~loops], target[~loops]])), published.nodes)
    what = f"it has {edges.shape[1] // 2} undirected edges, not {published.edges}"
    _expect(edges.shape[1] == 2 * published.edges, paths["graph"], what)
    return Graph(
        features=row_normalised(sparse_features(stacked)),
        feature_names=tuple(f"word {i}" for i in range(width)),
        edges=edges,
        labels=torch.from_numpy(labels),
        label_names=published.label_names or tuple(f"class {i}" for i in range(classes)),
        split=torch.from_numpy(split),
        ids=tuple(str(i) for i in range(published.nodes)),
    )


def _expect(holds: bool | np.bool_, path: Path, what: str) -> None:
    if not holds:
        raise DataError(f"{path}: this is not the published file: {what}. Remove it, and it will be downloaded again.")


def _matrix(path: Path) -> sparse.csr_matrix:
    saved = _unpickle(path)
    state = saved.state if isinstance(saved, _SavedMatrix) else {}
    arrays = [state.get(key) for key in ("data", "indices", "indptr")]
    shape = state.get("_shape", state.get("shape"))
    plain = all(isinstance(array, np.ndarray) and array.ndim == 1 for array in arrays)
    _expect(plain and _is_shape(shape), path, "it does not hold a sparse matrix of numbers")
    try:
        matrix = sparse.csr_matrix(tuple(arrays), shape=shape)
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: the sparse matrix in it is damaged ({error}). Remove the file.") from error
    _expect(np.isfinite(matrix.data).all(), path, "a feature is not finite")
    return matrix


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple) and len(shape) == 2 and all(type(size) is int and size >= 0 for size in shape)


def _labels(path: Path) -> np.ndarray:
    saved = _unpickle(path)
    one_hot = saved.array if isinstance(saved, _SavedArray) else np.empty(0)
    _expect(one_hot.ndim == 2, path, "it does not hold a table of numbers")
    ones = np.isin(one_hot, (0, 1)).all() and (one_hot.sum(1) <= 1).all()
    _expect(ones, path, "a row is not a one-hot label")
    return one_hot


def _indices(path: Path) -> np.ndarray:
    try:
        return np.array([int(line) for line in path.read_text(encoding="ascii").split()])
    except ValueError as error:
        raise DataError(f"{path}: this is not a list of node numbers ({error}). Remove the file.") from error


def _adjacency(path: Path, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    graph = _unpickle(path)
    lists = isinstance(graph, dict) and all(isinstance(neighbours, list) for neighbours in graph.values())
    _expect(lists, path, "it does not hold an adjacency list")
    pairs = [(target, source) for target, neighbours in graph.items() for source in neighbours]
    whole = all(type(target) is int and type(source) is int for target, source in pairs)
    _expect(bool(pairs) and whole, path, "the nodes are not numbers")
    target, source = np.array(pairs).T
    _expect(min(target.min(), source.min()) >= 0, path, "a node number is negative")
    _expect(max(target.max(), source.max()) < nodes, path, f"a node number is beyond the last of {nodes} nodes")
    return source, target


def _unpickle(path: Path) -> Any:
    try:
        with open(path, "rb") as file:
            return _Unpickler(file, encoding="latin1").load()  # Python 2 wrote these files; its strings are bytes
    except _Refused as error:
        raise DataError(
            f"{path}: the pickle was refused: {error}. Remove the file; it is not the published one."
        ) from None
    except Exception as error:  # a damaged pickle may raise anything
        reason = str(error) or type(error).__name__
        raise DataError(f"{path}: this is not a readable pickle ({reason}). Remove the file.") from error


class _Refused(pickle.UnpicklingError):
    """A pickle asks for something that no published file has."""


class _SavedArray:
    """Takes the place of NumPy's array in a pickle: its state is checked here, not by code that trusts it."""

    array = np.empty(0)

    def __init__(self, *_: Any) -> None:
        """Ignores what `ndarray` and `_reconstruct` are called with; all that matters is in the state."""

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        content = content.encode("latin1") if isinstance(content, str) else content
        self.array = np.frombuffer(content, dtype.plain()).reshape(shape, order="F" if fortran else "C")


class _SavedType:
    """Takes the place of NumPy's dtype; only numbers are admitted."""

    def __init__(self, kind: str, *_: Any) -> None:
        self.kind = kind
        self.order: Literal["<", ">"] = "<"

    def __setstate__(self, state: Any) -> None:
        self.order = ">" if state[1] == ">" else "<"

    def plain(self) -> np.dtype:
        if self.kind not in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"):
            raise _Refused(f"it holds an array of {self.kind!r}")
        return np.dtype(self.kind).newbyteorder(self.order)


class _SavedMatrix:
    """Takes the place of SciPy's matrix and keeps its arrays, so that they can be checked before SciPy sees them."""

    state: Mapping[str, Any] = MappingProxyType({})

    def __setstate__(self, state: Any) -> None:
        self.state = {key: value.array if isinstance(value, _SavedArray) else value for key, value in state.items()}


class _Unpickler(pickle.Unpickler):
    """Knows what the published files are made of. Names are looked up in a table and never imported."""

    _known: ClassVar = {
        ("numpy", "ndarray"): _SavedArray,
        ("numpy", "dtype"): _SavedType,
        **{(module, "_reconstruct"): _SavedArray for module in ("numpy.core.multiarray", "numpy._core.multiarray")},
        **{(module, "csr_matrix"): _SavedMatrix for module in ("scipy.sparse.csr", "scipy.sparse._csr")},
        ("collections", "defaultdict"): defaultdict,
        **{(module, "list"): list for module in ("__builtin__", "builtins")},
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._known:
            raise _Refused(f"it asks for {module}.{name}")
        return self._known[module, name]
