"""A graph from the user's own files: the two forms of features, the edges, the splits, and every kind of bad input."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from zoo.errors import DataError
from zoo.tasks.graph.graph import NONE, TEST, TRAIN, VAL, Graph, make_undirected, row_normalised, sparse_features
from zoo.tasks.graph.readers import read_graph

SAMPLES = Path(__file__).parents[3] / "data" / "samples" / "graph"

NODES = """id,label,split,x,y
a,red,train,1,0.5
b,blue,train,2,-1e1
c,red,val,3,0
d,blue,test,4,7
e,,,5,8
"""
EDGES = "source,target\na,b\nb,a\nb,c\nd,d\na,b\n"


@pytest.fixture
def read(tmp_path: Path):
    def _read(nodes: str = NODES, edges: str = EDGES, **options) -> Graph:
        (tmp_path / "nodes.csv").write_text(nodes, encoding="utf-8")
        (tmp_path / "edges.csv").write_text(edges, encoding="utf-8")
        return read_graph(tmp_path / "nodes.csv", tmp_path / "edges.csv", **options)

    return _read


def pairs(graph: Graph) -> list[tuple[str, str]]:
    return [(graph.ids[source], graph.ids[target]) for source, target in graph.edges.t().tolist()]


def test_numeric_features(read) -> None:
    graph = read()
    assert graph.feature_names == ("x", "y")
    assert graph.features.dtype == torch.float32
    assert graph.features.tolist() == [[1, 0.5], [2, -10], [3, 0], [4, 7], [5, 8]]
    assert graph.label_names == ("blue", "red")
    assert graph.labels.tolist() == [1, 0, 1, 0, NONE]
    assert graph.split.tolist() == [TRAIN, TRAIN, VAL, TEST, NONE]
    assert graph.ids == tuple("abcde")
    assert graph.gold is None


def test_undirected_edges_are_there_once_in_each_direction(read) -> None:
    assert pairs(read()) == [("b", "a"), ("a", "b"), ("c", "b"), ("b", "c"), ("d", "d")]


def test_directed_edges_are_kept_as_given(read) -> None:
    assert pairs(read(directed=True)) == [("a", "b"), ("b", "a"), ("b", "c"), ("d", "d"), ("a", "b")]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_undirected_is_the_set_of_pairs_in_both_directions(listed: list[tuple[int, int]]) -> None:
    edges = make_undirected(torch.tensor(listed, dtype=torch.int64).reshape(-1, 2).t(), 7)
    found = [tuple(pair) for pair in edges.t().tolist()]
    assert sorted(found) == sorted({pair for a, b in listed for pair in ((a, b), (b, a))})
    assert found == sorted(found, key=lambda pair: (pair[1], pair[0]))


def test_words_are_sparse(read) -> None:
    graph = read(
        "id,label,split,features\na,r,train,new:2 old\nb,r,val,\nc,r,test,old:0.5 old a:b:3 zero:0\n",
        "source,target\na,b\n",
    )
    assert graph.features.layout == torch.sparse_csr
    assert graph.feature_names == ("a:b", "new", "old", "zero")
    assert graph.features.to_dense().tolist() == [[0, 2, 1, 0], [0, 0, 0, 0], [3, 0, 1.5, 0]]
    assert len(graph.features.values()) == 4


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(counts=st.lists(st.dictionaries(st.sampled_from("abcdefg"), st.integers(1, 99), min_size=1), min_size=3))
def test_words_round_trip(read, counts: list[dict[str, int]]) -> None:
    lines = [
        f"n{i},r,{('train', 'val', 'test')[i % 3]},{' '.join(f'{word}:{n}' for word, n in row.items())}"
        for i, row in enumerate(counts)
    ]
    graph = read("\n".join(["id,label,split,features", *lines]), "source,target\nn0,n1\n")
    rows = graph.features.to_dense().tolist()
    assert [{graph.feature_names[j]: int(n) for j, n in enumerate(row) if n} for row in rows] == counts
    assert list(graph.feature_names) == sorted(graph.feature_names)


def test_without_a_split_column_each_label_is_split_60_20_20(read) -> None:
    lines = [f"n{i},{'red' if i % 2 else 'blue'},{i}" for i in range(40)] + ["u,,0"]
    nodes, edges = "\n".join(["id,label,x", *lines]), "source,target\nn0,n1\n"
    graph = read(nodes, edges)
    for label in (0, 1):
        assert torch.bincount(graph.split[graph.labels == label]).tolist() == [12, 4, 4]
    assert graph.split[-1] == NONE
    assert torch.equal(graph.split, read(nodes, edges).split)
    assert not torch.equal(graph.split, read(nodes, edges, split_seed=1).split)
    # A checkpoint may number the labels otherwise; its test nodes must stay its test nodes.
    assert torch.equal(graph.split, read(nodes, edges, labels=["red", "green", "blue"]).split)


def test_a_models_labels_and_columns_are_matched_by_name(read) -> None:
    graph = read(labels=["red", "green", "blue"], feature_names=["y", "x"])
    assert graph.label_names == ("red", "green", "blue")
    assert graph.labels.tolist() == [0, 2, 0, 2, NONE]
    assert graph.features[0].tolist() == [0.5, 1]


def test_nodes_to_be_predicted_need_no_label_and_no_split(read) -> None:
    graph = read("id,x\nf,1\ng,2\n", "source,target\nf,g\n", labels=["red", "blue"], feature_names=["x"])
    assert graph.labels.tolist() == graph.split.tolist() == [NONE, NONE]
    graph = read("id,label,split,x\nf,,test,1\ng,red,test,2\n", "source,target\nf,g\n", labels=["red", "blue"])
    assert graph.split.tolist() == [TEST, TEST]  # it can be predicted by its split; evaluation leaves it out


def test_columns_that_are_not_used_are_told(read) -> None:
    with pytest.warns(UserWarning, match=r"nodes\.csv: 'y' is not among the model's features"):
        assert read(feature_names=["x"]).features.shape == (5, 1)
    with pytest.warns(UserWarning, match=r"edges\.csv: 'weight', 'year' are not used"):
        read(edges="source,target,weight,year\na,b,1,2\n")


def test_words_that_are_not_known_are_counted(read) -> None:
    nodes = "id,features\na,new:2 old gone\nb,gone lost old\n"
    with pytest.warns(UserWarning, match="left out 3 word:count pairs, 'gone', 'lost' are not among the model's words"):
        graph = read(nodes, "source,target\na,b\n", labels=["r"], feature_names=["old", "new", "other"])
    assert graph.features.to_dense().tolist() == [[1, 2, 0], [1, 0, 0]]


def test_skipped_rows_are_counted(read) -> None:
    nodes = NODES.replace("e,,,5,8", "e,,,five,8") + "a,red,train,0,0\n"
    with pytest.warns(UserWarning, match="skipped") as caught:
        graph = read(nodes, EDGES + "e,a\nz,a\n", on_bad_row="skip")
    assert graph.ids == tuple("abcd")
    assert len(pairs(graph)) == 5
    told = [str(warning.message) for warning in caught]
    assert [("skipped 2 bad rows" in message, "csv, line" in message) for message in told] == [(True, True)] * 2


def test_good_files_give_no_warning(read) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read()


BAD_NODES = [
    ("id,label,split\na,r,train\n", 1, ["no features", "word:count"]),
    ("id,label,features,age\na,r,b:1,3\n", 1, ["column 'age'", "words"]),
    (NODES.replace("4,7", "4,many"), 5, ["column 'y'", "'many' is not a number"]),
    (NODES.replace("4,7", "4,inf"), 5, ["column 'y'", "'inf' is not finite"]),
    (NODES.replace("4,7", "4,"), 5, ["column 'y'", "empty"]),
    (NODES.replace("e,,,", "e,,train,"), 6, ["column 'label'", "'train' and has no label"]),
    (
        NODES.replace("d,blue", "d,green"),
        5,
        ["column 'label'", "the label 'green' is seen in test, and never in train"],
    ),
    (NODES.replace("c,red", "c,green"), 4, ["column 'label'", "the label 'green' is seen in val, and never in train"]),
    (
        NODES.replace("e,,", "e,green,"),
        6,
        ["column 'label'", "the label 'green' is seen in no split, and never in train"],
    ),
    (NODES.replace("train", ""), 3, ["column 'label'", "never in train"]),
    ("id,label,x\na,,1\n", None, ["column 'label'", "no node has a label"]),
    ("id,label,features\na,r,old:two\n", 2, ["column 'features'", "'old:two'", "'two' is not a number"]),
    ("id,label,features\na,r,old:inf\n", 2, ["column 'features'", "not finite"]),
    ("id,label,features\na,r,:2\n", 2, ["column 'features'", "names no word"]),
]


@pytest.mark.parametrize(("nodes", "line", "words"), BAD_NODES)
def test_bad_nodes(read, tmp_path: Path, nodes: str, line: int | None, words: list[str]) -> None:
    check(lambda: read(nodes, "source,target\na,a\n"), tmp_path / "nodes.csv", line, words)


def test_words_without_a_word(read, tmp_path: Path) -> None:
    nodes = "id,label,split,features\na,r,train,\nb,r,val,\nc,r,test,\n"
    check(lambda: read(nodes), tmp_path / "nodes.csv", None, ["column 'features'", "no node has a word"])


@pytest.mark.parametrize(
    ("edges", "line", "words"),
    [
        ("", None, ["empty"]),
        ("source,target\n", None, ["no rows"]),
        ("from,target\na,b\n", 1, ["column 'source'"]),
        (EDGES + "a,nobody\n", 7, ["column 'target'", "'nobody' is not the id of a node in", "nodes.csv", "Add a row"]),
        (EDGES + "nobody,a\n", 7, ["column 'source'", "'nobody'"]),
        (EDGES + "a,\n", 7, ["column 'target'", "empty"]),
    ],
)
def test_bad_edges(read, tmp_path: Path, edges: str, line: int | None, words: list[str]) -> None:
    check(lambda: read(edges=edges), tmp_path / "edges.csv", line, words)


def test_bad_input_for_a_trained_model(read, tmp_path: Path) -> None:
    check(lambda: read(labels=["red", "bleu"]), tmp_path / "nodes.csv", 3, ["column 'label'", "Did you mean 'bleu'?"])
    check(lambda: read(feature_names=["x", "yy"]), tmp_path / "nodes.csv", 1, ["column 'yy'", "Did you mean 'y'?"])


def check(action, path: Path, line: int | None, words: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        action()
    text = str(caught.value)
    assert text.startswith(str(path) if line is None else f"{path}, line {line}")
    assert [word for word in words if word not in text] == []
    assert "\n" not in text


@pytest.mark.parametrize(("nodes", "layout"), [("nodes", torch.strided), ("nodes_sparse", torch.sparse_csr)])
def test_the_samples_can_be_trained_on(nodes: str, layout: torch.layout) -> None:
    graph = read_graph(SAMPLES / f"{nodes}.csv", SAMPLES / "edges.csv")
    assert graph.features.layout == layout
    assert graph.label_names == ("graphs", "language", "vision")
    assert [int((graph.split == part).sum()) for part in (TRAIN, VAL, TEST, NONE)] == [18, 9, 9, 2]
    isolated = set(range(len(graph.ids))) - set(graph.edges.flatten().tolist())
    assert len(isolated) == 1


def test_rows_are_divided_by_their_sums() -> None:
    dense = torch.tensor([[1.0, 3, 0], [0, 0, 0], [0, 0, 2]])
    expected = [[0.25, 0.75, 0], [0, 0, 0], [0, 0, 1]]
    assert row_normalised(dense).tolist() == expected
    normalised = row_normalised(sparse_features(sparse.csr_matrix(dense.numpy())))
    assert normalised.layout == torch.sparse_csr
    np.testing.assert_array_equal(normalised.to_dense(), expected)
