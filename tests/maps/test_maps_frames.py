"""Maps as tidy tables, complete and in pieces."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from map_cases import dense_map, edge_map, random_edges

from zoo.attention import AttentionMap, DenseSupport
from zoo.errors import DataError
from zoo.maps import Writer, dataframes, label_map, load


def test_a_dense_map_as_a_table(tmp_path: Path) -> None:
    found = dense_map(batch=1, queries=3, keys=3, causal=True)
    words = ["the", "cat", "the"]
    with Writer(tmp_path / "maps", model="m") as writer:
        writer.add("text", found, axis_labels={"query": words, "key": words})
    table = load(tmp_path / "maps").to_pandas()
    assert list(table.columns) == [
        "example", "layer", "head", "query", "key", "weight", "query_position", "key_position",
    ]  # fmt: skip
    assert len(table) == 3 * 6  # pairs that are not permitted are left out
    row = table[(table["head"] == 1) & (table["query_position"] == 2) & (table["key"] == "cat")].iloc[0]
    assert row["weight"] == pytest.approx(float(found.weights[0, 1, 2, 1]))
    assert (row["example"], row["layer"], row["query"]) == ("text", 0, "the")
    assert table.groupby(["head", "query_position"])["weight"].sum().tolist() == pytest.approx([1.0] * 9)


def test_edges_as_a_table(tmp_path: Path) -> None:
    ids = ["ann", "bob", "cy", "dee"]
    recorded = {site: edge_map(random_edges(4, 9), 4, site=site, seed=seed) for seed, site in enumerate("ab")}
    with Writer(tmp_path / "maps", model="gat") as writer:
        writer.add("g", recorded, axis_labels={"source": ids, "target": ids})
    maps = load(tmp_path / "maps")
    table = maps.to_pandas()
    assert list(table.columns) == ["example", "layer", "head", "source", "target", "weight", "is_self_loop"]
    support = recorded["b"].support
    one = table[(table["layer"] == 1) & (table["head"] == 1)]
    assert one["source"].tolist() == [ids[i] for i in support.source]
    assert one["target"].tolist() == [ids[i] for i in support.target]
    assert one["weight"].tolist() == recorded["b"].weights[:, 1].tolist()
    assert (one["is_self_loop"] == (one["source"].astype(str) == one["target"].astype(str))).all()
    assert one["is_self_loop"].sum() == 4
    assert maps.to_pandas(layers=[1])["layer"].unique().tolist() == [1]
    with pytest.raises(DataError, match="no such maps"):
        maps.to_pandas(layers=[7])


def test_several_examples_and_kinds(tmp_path: Path) -> None:
    with Writer(tmp_path / "maps", model="m", heads="mean") as writer:
        writer.add("one", dense_map(batch=1, queries=1, keys=2), axis_labels={"query": ["x"], "key": ["a", "b"]})
        writer.add("two", dense_map(batch=1, queries=1, keys=2), axis_labels={"query": ["y"], "key": ["b", "c"]})
    maps = load(tmp_path / "maps")
    table = maps.to_pandas()
    assert table["example"].tolist() == ["one", "one", "two", "two"]
    assert table["key"].tolist() == ["a", "b", "b", "c"]
    assert isinstance(table["key"].dtype, pd.CategoricalDtype)
    assert set(table["head"]) == {"mean"}
    assert maps.to_pandas(["two"])["query"].tolist() == ["y", "y"]


def test_steps_have_their_column() -> None:
    weights = torch.rand(3, 1, 2, 1, 4).softmax(-1)
    found = AttentionMap("a", weights, ("step", "batch", "head", "query", "key"), [DenseSupport()] * 3, (0, 1))
    (first, second) = dataframes.frames(label_map(found, {"step": ["le", "chien", "."], "key": list("abcd")}))
    assert list(first.columns) == ["layer", "head", "step", "key", "weight", "step_position", "key_position"]
    assert first["step"].tolist() == ["le"] * 4 + ["chien"] * 4 + ["."] * 4
    assert second["weight"].tolist() == weights[:, 0, 1, 0].flatten().tolist()


def test_steps_with_queries_of_their_own() -> None:
    weights = torch.rand(2, 1, 1, 3, 4).softmax(-1)
    found = AttentionMap("a", weights, ("step", "batch", "head", "query", "key"), [DenseSupport()] * 2, (0,))
    (table,) = dataframes.frames(label_map(found, {"query": ["x", "y", "z"]}))
    assert list(table.columns)[2:6] == ["step", "query", "key", "weight"]
    row = table[(table["step"] == "1") & (table["query"] == "y") & (table["key"] == "3")].iloc[0]
    assert row["weight"] == pytest.approx(float(weights[1, 0, 0, 1, 3]))


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_pieces_add_up(rows: int) -> None:
    found = label_map(edge_map(random_edges(6, 30), 6), {"source": list("abcdef"), "target": list("abcdef")})
    pieces = list(dataframes.frames(found, rows=rows))
    assert max(map(len, pieces)) <= rows
    pd.testing.assert_frame_equal(dataframes.concat(pieces), dataframes.concat(list(dataframes.frames(found))))


def test_tables_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def pieces():
        yield pd.DataFrame({"a": [1]})
        raise RuntimeError("boom")

    for name in ("t.csv", "t.parquet"):
        with pytest.raises(RuntimeError, match="boom"):
            dataframes.write(pieces(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="not 'xlsx'"):
        dataframes.write(pieces(), tmp_path / "t.xlsx")
    with pytest.raises(DataError, match="without an ending"):
        dataframes.write(pieces(), tmp_path / "t")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        dataframes.write(pieces(), tmp_path / "file" / "t.csv")


def test_gates_as_a_table(tmp_path: Path) -> None:
    spatial, channel = torch.rand(1, 2, 3), torch.rand(1, 4)
    gates = {
        "spatial": AttentionMap("spatial", spatial, ("batch", "height", "width"), None, ()),
        "channel": AttentionMap("channel", channel, ("batch", "channel"), None, ()),
    }
    with Writer(tmp_path / "maps", model="m") as writer:
        writer.add("photo", gates["spatial"], axis_labels={"height": ["top", "bottom"]})
        writer.add("photo", gates["channel"], axis_labels={})
    maps = load(tmp_path / "maps")
    table = maps.to_pandas(layers=[0])
    assert list(table.columns) == ["example", "layer", "height", "width", "weight"]
    assert table["height"].tolist() == ["top"] * 3 + ["bottom"] * 3
    assert table["width"].tolist() == ["0", "1", "2"] * 2
    assert table["weight"].tolist() == pytest.approx(spatial.flatten().tolist())
    both = maps.to_pandas()
    assert both["weight"].tolist() == pytest.approx([*spatial.flatten().tolist(), *channel.flatten().tolist()])
    assert both["channel"].tolist()[6:] == ["0", "1", "2", "3"]
    assert torch.equal(maps["photo"]["channel"].weights, channel[0])


def test_a_gate_in_pieces_of_rows() -> None:
    gate = AttentionMap("gate", torch.rand(1, 4, 5), ("batch", "height", "width"), None, ())
    pieces = list(dataframes.frames(label_map(gate, {}), rows=7))
    assert [len(piece) for piece in pieces] == [7, 7, 6]
    assert pd.concat(pieces)["weight"].tolist() == pytest.approx(gate.weights.flatten().tolist())
