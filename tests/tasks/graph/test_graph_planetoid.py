"""The Planetoid sets: generated files of the published format, hostile files, and the real ones where they are."""

import functools
import io
import os
import pickle
import struct
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from zoo.errors import ConfigError, DataError, OfflineError
from zoo.tasks.graph import planetoid_files
from zoo.tasks.graph.graph import NONE, TEST, TRAIN, VAL
from zoo.tasks.graph.planetoid_files import read_planetoid

#        folder, nodes, edges, features, classes, train, isolated test nodes, density of the features
FORMS = {
    "cora": ("Cora", 2708, 5278, 1433, 7, 140, 0, 0.0127),
    "citeseer": ("CiteSeer", 3327, 4552, 3703, 6, 120, 15, 0.0085),
    "pubmed": ("PubMed", 19717, 44324, 500, 3, 60, 0, 0.01),
}
DEAD = "http://127.0.0.1:9"


class Python2Pickler(pickle._Pickler):
    """Pickles as Python 2 did: strings are bytes, and NumPy and SciPy modules have their former names."""

    def save_bytes(self, content: bytes) -> None:
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)
        self.memoize(content)

    dispatch = pickle._Pickler.dispatch | {bytes: save_bytes}


def python2(value: object) -> bytes:
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    then = file.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    return then.replace(b"cscipy.sparse._csr\n", b"cscipy.sparse.csr\n")


def python3(value: object) -> bytes:
    return pickle.dumps(value, protocol=4)


def publish(root: Path, name: str, dumps: Callable[[object], bytes] = python3) -> dict:
    """Writes the eight files of a random set; returns what is in it."""
    folder, nodes, edges, width, classes, train, isolated, density = FORMS[name]
    random = np.random.default_rng(0)
    known = nodes - 1000 - isolated
    test = random.permutation(np.arange(known, nodes))[isolated:]
    missing = np.setdiff1d(np.arange(known, nodes), test)

    features = sparse.random(nodes, width, density, format="csr", dtype=np.float64, random_state=random)
    if name != "pubmed":  # the others count words, pubmed has weights
        features = (features != 0).astype(np.float32)
    features = sparse.csr_matrix(sparse.diags(np.isin(np.arange(nodes), missing, invert=True).astype(float)) @ features)
    labels = np.arange(nodes) % classes
    one_hot = np.eye(classes, dtype=np.int32)[labels]

    touched = np.delete(np.arange(nodes), missing)
    pairs = touched[random.integers(len(touched), size=(2 * edges, 2))]
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    pairs = pairs[random.permutation(len(pairs))[:edges]]
    graph = defaultdict(list, {node: [] for node in range(nodes)})
    for a, b in pairs.tolist():
        graph[a].append(b)
        graph[b].append(a)
    graph[0] += [0, *graph[0]]  # the published lists have self-loops and repetitions

    parts = {
        "x": features[:train],
        "allx": features[:known],
        "tx": features[test],
        "y": one_hot[:train],
        "ally": one_hot[:known],
        "ty": one_hot[test],
        "graph": graph,
    }
    raw = root / "planetoid" / folder / "raw"
    raw.mkdir(parents=True)
    for part, value in parts.items():
        (raw / f"ind.{name}.{part}").write_bytes(dumps(value))
    (raw / f"ind.{name}.test.index").write_text("".join(f"{node}\n" for node in test))
    return {"features": features, "labels": labels, "pairs": pairs, "test": test, "missing": missing, "raw": raw}


@pytest.mark.parametrize(("name", "dumps"), [("cora", python2), ("citeseer", python2), ("pubmed", python3)])
def test_files_of_the_published_format(tmp_path: Path, name: str, dumps) -> None:
    truth = publish(tmp_path, name, dumps)
    _, nodes, edges, width, classes, train, isolated, _ = FORMS[name]
    graph = read_planetoid(tmp_path, name)

    assert graph.features.layout == torch.sparse_csr
    assert graph.features.shape == (nodes, width)
    found = graph.features.to_dense().numpy()
    expected = truth["features"].toarray()
    expected /= np.where(expected.sum(1, keepdims=True) == 0, 1, expected.sum(1, keepdims=True))
    np.testing.assert_allclose(found, expected, rtol=1e-6)

    labels = truth["labels"].copy()
    labels[truth["missing"]] = NONE
    assert graph.labels.tolist() == labels.tolist()
    assert len(graph.label_names) == classes
    assert (int((graph.labels == NONE).sum()), len(graph.feature_names), len(graph.ids)) == (isolated, width, nodes)

    split = np.full(nodes, NONE)
    split[:train], split[train : train + 500], split[truth["test"]] = TRAIN, VAL, TEST
    assert graph.split.tolist() == split.tolist()

    both = np.concatenate([truth["pairs"], truth["pairs"][:, ::-1]])
    assert graph.edges.shape == (2, 2 * edges)
    assert set(map(tuple, graph.edges.t().tolist())) == set(map(tuple, both.tolist()))


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> dict[str, bytes]:
    """The files of a generated Cora, by part."""
    root = tmp_path_factory.mktemp("published")
    raw = publish(root, "cora")["raw"]
    return {path.name.removeprefix("ind.cora."): path.read_bytes() for path in raw.iterdir()}


@pytest.fixture
def cora(tmp_path: Path, published: dict[str, bytes]):
    """Places the files of a generated Cora, some of them changed or (None) left out."""

    def _place(changes: dict[str, bytes | None] | None = None, root: Path = tmp_path) -> Path:
        raw = root / "planetoid" / "Cora" / "raw"
        raw.mkdir(parents=True)
        for part, content in (published | (changes or {})).items():
            if content is not None:
                (raw / f"ind.cora.{part}").write_bytes(content)
        return root

    return _place


class Reduced:
    """Pickles as a call, as in a hostile file."""

    def __init__(self, function: Callable, *args: object) -> None:
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def hostile(mark: Path) -> dict[str, bytes]:
    array = np.arange(3)
    code = f"open({str(mark)!r}, 'w')"
    return {
        "os.system": python3(Reduced(os.system, f"touch {mark}")),
        "eval": python3(Reduced(eval, code)),
        "exec, as Python 2 named it": f"c__builtin__\neval\n(V{code}\ntR.".encode(),
        "getattr": python3(Reduced(getattr, array, "tofile")),
        "partial": python3(functools.partial(os.system, f"touch {mark}")),
        "numpy writes": python3(Reduced(np.save, str(mark), array)),
        "numpy reads": python3(Reduced(np.fromfile, "/etc/hostname")),
        "numpy loads": python3(Reduced(np.load, "other.npy", None, True)),
        "numpy runs": f"cnumpy.testing\nrundocs\n(V{mark}\ntR.".encode(),
        "scipy loads": python3(Reduced(sparse.load_npz, "other.npz")),
        "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
        "in an array of objects": python3(np.array([Reduced(os.system, f"touch {mark}")], dtype=object)),
        "in a list of the graph": python3(defaultdict(list, {0: [Reduced(os.system, f"touch {mark}")]})),
        "as the state of a matrix": python3(sparse.csr_matrix((1, 1))).replace(b"csr_matrix", b"csc_matrix"),
        "as a default of the graph": python3(defaultdict(os.getcwd, {0: [1]})),
        "by extension code": b"\x80\x02\x82\x01.",
        "by persistent id": b"Vid\n\x88Q.",
        "by changing a class": b"cnumpy\nndarray\n}(V__setstate__\nI1\nub.",
    }


@pytest.mark.parametrize("kind", sorted(hostile(Path("mark"))))
@pytest.mark.parametrize("part", ["allx", "ally", "graph"])
def test_a_pickle_of_anything_else_is_refused_before_it_acts(cora, tmp_path: Path, kind: str, part: str) -> None:
    mark = tmp_path / "mark.npy"
    root = cora({part: hostile(mark)[kind]})
    with pytest.raises(DataError, match=rf"ind\.cora\.{part}: .*(refused: it asks for|not a readable pickle|holds? )"):
        read_planetoid(root, "cora")
    assert not mark.exists()


def changed(change: Callable[[sparse.csr_matrix], object]) -> bytes:
    matrix = sparse.random(1708, 1433, 0.01, format="csr", dtype=np.float32, random_state=0)
    change(matrix)
    return python3(matrix)


def _beyond(matrix: sparse.csr_matrix) -> None:
    matrix.indices[0] = 5000


def _infinite(matrix: sparse.csr_matrix) -> None:
    matrix.data[0] = np.inf


def _of_complex(matrix: sparse.csr_matrix) -> None:
    matrix.data = matrix.data.astype(np.complex64)


@pytest.mark.parametrize(
    ("part", "content", "words"),
    [
        ("allx", b"", "not a readable pickle"),
        ("allx", b"<!DOCTYPE html>", "not a readable pickle"),
        ("allx", python3([1, 2]), "does not hold a sparse matrix"),
        ("allx", python3(sparse.csr_matrix((1708, 1432))), r"shape \(1708, 1432\), not \(1708, 1433\)"),
        ("allx", changed(_beyond), "sparse matrix in it is damaged"),
        ("allx", changed(_infinite), "not finite"),
        ("allx", changed(_of_complex), "it holds an array of 'c8'"),
        ("x", python3(sparse.csr_matrix((139, 1433))), r"shape \(139, 1433\)"),
        ("ty", python3(np.zeros((1000, 7), dtype=np.int32)), "a node of the public split has no label"),
        ("ty", python3(np.ones((1000, 7))), "not a one-hot label"),
        ("ty", python3(np.zeros(1000)), "does not hold a table"),
        ("ty", python3(np.array([[1, None]], dtype=object)), "it holds an array of 'O8'"),
        ("ty", python3(np.array([["a"]])), "it holds an array of 'U1'"),
        ("graph", python3({}), "not numbers"),
        ("graph", python3({0: [1.5]}), "not numbers"),
        ("graph", python3({0: [-1]}), "negative"),
        ("graph", python3({0: [2708]}), "beyond the last of 2708"),
        ("graph", python3({0: [1]}), "1 undirected edges, not 5278"),
        ("graph", python3([[1]]), "adjacency list"),
        ("test.index", b"1708\nmany\n", "not a list of node numbers"),
        ("test.index", b"1708\n", "does not name 1000 nodes"),
        ("test.index", "".join(f"{node}\n" for node in range(1000)).encode(), "does not name 1000 nodes"),
    ],
)
def test_files_that_are_not_the_published_ones(cora, part: str, content: bytes, words: str) -> None:
    root = cora({part: content})
    with pytest.raises(DataError, match=words) as caught:
        read_planetoid(root, "cora")
    assert f"ind.cora.{'ally' if 'no label' in words else part}" in str(caught.value)
    assert (root / "planetoid/Cora/raw" / f"ind.cora.{part}").exists()  # the user's own files are never removed


def test_a_truncated_file(cora, published: dict[str, bytes]) -> None:
    with pytest.raises(DataError, match=r"ind\.cora\.tx: this is not a readable pickle"):
        read_planetoid(cora({"tx": published["tx"][:-100]}), "cora")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'cora'\?"):
        read_planetoid(Path("data"), "coral")


def test_without_a_network_it_is_said_what_to_place_where(tmp_path: Path, cora, monkeypatch) -> None:
    monkeypatch.setattr(planetoid_files, "_SOURCE", DEAD)
    root = cora({"graph": None, "tx": None})
    with pytest.raises(OfflineError) as caught:
        read_planetoid(root, "cora")
    raw = str(root / "planetoid" / "Cora" / "raw")
    for words in (f"{raw}/ind.cora.tx", "Without a network", "$ZOO_DATA", "wanted there: ind.cora.tx, ind.cora.graph"):
        assert words in str(caught.value)


def test_a_root_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(planetoid_files, "_SOURCE", DEAD)
    (tmp_path / "file").write_text("no folder can be made here")
    with pytest.raises(DataError, match=r"Cora/raw: there is no ind\.cora\.x, .*cannot be written.*\$ZOO_DATA"):
        read_planetoid(tmp_path / "file", "cora")


@pytest.fixture
def source(tmp_path: Path, cora, monkeypatch) -> Path:
    """A folder that is served in the place of the published one."""
    raw = cora(root=tmp_path / "served") / "planetoid" / "Cora" / "raw"

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Keeps the test's output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=raw)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setattr(planetoid_files, "_SOURCE", f"http://127.0.0.1:{server.server_port}")
        yield raw
        server.shutdown()
        thread.join()


def test_missing_files_are_downloaded(tmp_path: Path, source: Path, cora, monkeypatch) -> None:
    root = cora({"graph": None, "test.index": None}, tmp_path / "data")
    first = read_planetoid(root, "cora")
    assert len(list((root / "planetoid" / "Cora" / "raw").iterdir())) == 8
    monkeypatch.setattr(planetoid_files, "_SOURCE", DEAD)
    assert torch.equal(read_planetoid(root, "cora").edges, first.edges)


def test_the_cache_takes_the_downloads_of_a_root_that_cannot_be_written(tmp_path: Path, source: Path) -> None:
    (tmp_path / "file").write_text("no folder can be made here")
    for _ in range(2):
        read_planetoid(tmp_path / "file", "cora", cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache" / "planetoid" / "Cora" / "raw").iterdir())) == 8


def test_a_download_of_something_else_is_not_kept(tmp_path: Path, source: Path, cora) -> None:
    (source / "ind.cora.graph").write_text("<html>please log in</html>")
    root = cora({"graph": None}, tmp_path / "data")
    with pytest.raises(DataError, match=r"not a readable pickle.*were not kept"):
        read_planetoid(root, "cora")
    assert sorted(path.name for path in (root / "planetoid/Cora/raw").iterdir()) == sorted(
        f"ind.cora.{part}" for part in planetoid_files._PARTS if part != "graph"
    )


@pytest.mark.real
def test_the_real_cora_is_what_pyg_reads() -> None:
    root = os.environ.get("ZOO_DATA")
    if root is None or not (Path(root) / "planetoid" / "Cora" / "raw").is_dir():
        pytest.skip("Cora is not there: set ZOO_DATA to the folder that holds planetoid/Cora/raw")
    from torch_geometric.io import read_planetoid_data  # slow to import, and needed here only

    graph = read_planetoid(root, "cora")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it imports SciPy's classes by their old names
        reference = read_planetoid_data(str(Path(root) / "planetoid" / "Cora" / "raw"), "cora")
    assert torch.equal(graph.labels, reference.y)
    for part, mask in ((TRAIN, "train_mask"), (VAL, "val_mask"), (TEST, "test_mask")):
        assert torch.equal(graph.split == part, reference[mask])
    torch.testing.assert_close(graph.features.to_dense(), reference.x / reference.x.sum(1, keepdim=True))
    assert set(map(tuple, graph.edges.t().tolist())) == set(map(tuple, reference.edge_index.t().tolist()))
    # The sizes that are published for the named classes.
    sizes = dict(zip(graph.label_names, torch.bincount(graph.labels).tolist(), strict=True))
    assert sizes == {
        "Neural_Networks": 818,
        "Probabilistic_Methods": 426,
        "Genetic_Algorithms": 418,
        "Theory": 351,
        "Case_Based": 298,
        "Reinforcement_Learning": 217,
        "Rule_Learning": 180,
    }
