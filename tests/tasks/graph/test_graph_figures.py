"""A graph's edges as one table, its nodes' entropy, the picture of a neighbourhood."""

import builtins
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.image import imread

from zoo.attention import GAT, Attention, AttentionMap, EdgeSupport, Softmax, record
from zoo.errors import ZooError
from zoo.maps import LabelledMap, Writer, dataframes, edge_gold, label_map, load, plots
from zoo.tasks.graph.edge_tables import edges, entropies, limits
from zoo.tasks.graph.plots import neighbourhood

IDS = ["ann", "bob", "1,2", 'say "cheese"', "eve"]
EDGES = torch.tensor([[0, 1, 2, 3, 0, 2], [1, 0, 1, 1, 4, 2]])


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Attention(GAT(dim=4, heads=2), Softmax()) for _ in range(2)])

    def forward(self, x: torch.Tensor, support: EdgeSupport) -> None:
        for layer in self.layers:
            layer(x, x, x, support)


@pytest.fixture
def recorded():
    torch.manual_seed(0)
    net = Net()
    with record(net) as maps:
        net(torch.randn(5, 2, 4), EdgeSupport.from_edges(EDGES, 5, self_loops=True))
    return maps


def star(neighbours: int, *, names: str = "{}", gold: bool = True, heads: int = 2) -> tuple[LabelledMap, list[str]]:
    """The map of a node 0 with this number of neighbours, the first three of them gold."""
    nodes = neighbours + 1
    edges = torch.stack([torch.arange(1, nodes), torch.zeros(neighbours, dtype=torch.int64)])
    support = EdgeSupport.from_edges(edges, nodes, self_loops=True)
    marks = edge_gold(torch.arange(neighbours) < 3, support)
    scores = torch.randn(len(support.order), heads, generator=torch.Generator().manual_seed(1))
    found = AttentionMap(
        "layers.0", support.softmax(scores + 2 * marks[:, None]), ("edge", "head"), support, tuple(range(heads))
    )
    ids = [names.format(i) for i in range(nodes)]
    return label_map(found, {"source": ids, "target": ids}, gold=marks if gold else None), ids


def test_each_weight_stands_with_its_edge(recorded) -> None:
    table = dataframes.concat(list(edges(recorded, IDS)))
    assert list(table.columns) == ["layer", "head", "source", "target", "weight", "is_self_loop"]
    assert len(table) == 2 * 2 * (5 + 5)
    support = recorded["layers.0"].support
    expected = {
        (layer, head, IDS[s], IDS[t]): float(recorded[f"layers.{layer}"].weights[e, head])
        for layer in range(2)
        for head in range(2)
        for e, (s, t) in enumerate(zip(support.source.tolist(), support.target.tolist(), strict=True))
    }
    found = {row[:4]: row[4] for row in table.itertuples(index=False, name=None)}
    assert found == expected
    given = {(IDS[s], IDS[t]) for s, t in EDGES.T.tolist() if s != t}
    assert {key[2:] for key in found if key[2] != key[3]} == given
    assert (table["is_self_loop"] == [s == t for s, t in zip(table["source"], table["target"], strict=True)]).all()


def test_the_table_of_maps_on_disk_is_that_of_the_recording(recorded, tmp_path: Path) -> None:
    with Writer(tmp_path / "maps", model="gat") as writer:
        writer.add("graph", recorded, axis_labels={"source": IDS, "target": IDS})
    read = load(tmp_path / "maps")["graph"]
    pd.testing.assert_frame_equal(dataframes.concat(list(edges(read))), dataframes.concat(list(edges(recorded, IDS))))
    mean = dataframes.concat(list(edges(read, heads="mean")))
    pd.testing.assert_frame_equal(mean, dataframes.concat(list(edges(recorded, IDS, heads="mean"))))
    assert set(mean["head"]) == {"mean"}
    by_edge = (
        dataframes.concat(list(edges(read))).groupby(["layer", "source", "target"], observed=True)["weight"].mean()
    )
    for row in mean.itertuples():
        assert row.weight == pytest.approx(by_edge[row.layer, row.source, row.target])


def test_layers_keep_their_numbers(recorded) -> None:
    last = {"layers.1": recorded["layers.1"]}
    assert set(dataframes.concat(list(edges(last, IDS)))["layer"]) == {0}
    assert set(dataframes.concat(list(edges(last, IDS, layers=["layers.0", "layers.1"])))["layer"]) == {1}
    with pytest.raises(ValueError, match="nothing was recorded"):
        dataframes.concat(list(edges({})))


@pytest.mark.parametrize("name", ["edges.csv", "edges.parquet"])
@pytest.mark.parametrize("rows", [3, 1000])
def test_tables_are_read_back(recorded, tmp_path: Path, name: str, rows: int) -> None:
    path = tmp_path / name
    dataframes.write(edges(recorded, IDS, rows=rows), path)
    table = pd.read_csv(path, dtype={"source": str, "target": str}) if path.suffix == ".csv" else pd.read_parquet(path)
    expected = dataframes.concat(list(edges(recorded, IDS)))
    for column in expected:
        assert table[column].astype(expected[column].dtype).tolist() == expected[column].tolist()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_graph_without_edges_has_a_header(tmp_path: Path) -> None:
    support = EdgeSupport.from_edges(torch.empty(2, 0, dtype=torch.int64), 2)
    found = {"a": AttentionMap("a", torch.empty(0, 1), ("edge", "head"), support, (0,))}
    for format in ("csv", "parquet"):
        dataframes.write(edges(found), tmp_path / format, format=format)
    assert (tmp_path / "csv").read_text() == "layer,head,source,target,weight,is_self_loop\n"
    assert len(pd.read_parquet(tmp_path / "parquet")) == 0


def test_memory_is_bounded_by_the_piece(tmp_path: Path) -> None:
    nodes, count = 1000, 300_000
    ends = torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(0))
    support = EdgeSupport.from_edges(ends, nodes)
    found = {"a": AttentionMap("a", torch.rand(count, 1), ("edge", "head"), support, (0,))}
    ids = [f"node {i}" for i in range(nodes)]
    dataframes.write(edges(found, ids, rows=count), tmp_path / "warm.parquet")
    tracemalloc.start()
    dataframes.write(edges(found, ids, rows=10_000), tmp_path / "edges.parquet")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000, peak  # the full table takes more than ten million
    assert len(pd.read_parquet(tmp_path / "edges.parquet")) == count


def test_parquet_without_pyarrow(recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    table = tmp_path / "edges.parquet"
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ZooError, match=r'pip install "attention-zoo\[parquet\]"'):
        dataframes.write(edges(recorded, IDS), table)
    assert not table.exists()


def test_entropy_of_each_node_and_head(recorded, tmp_path: Path) -> None:
    dataframes.write(entropies(recorded, IDS), tmp_path / "entropy.csv")
    table = pd.read_csv(tmp_path / "entropy.csv", dtype={"node": str})
    assert list(table.columns) == [
        "layer", "head", "node", "neighbours", "entropy", "normalised_entropy", "effective_keys", "self_loop_share",
    ]  # fmt: skip
    assert len(table) == 2 * 2 * 5
    alone = table[table["node"] == "1,2"]  # only its self-loop
    assert alone["entropy"].tolist() == pytest.approx([0.0] * 4)
    assert alone["self_loop_share"].tolist() == [1.0] * 4
    assert alone["normalised_entropy"].isna().all()
    weights = recorded["layers.1"].weights[recorded["layers.1"].support.target == 1, 0]
    row = table[(table["layer"] == 1) & (table["head"] == 0) & (table["node"] == "bob")].iloc[0]
    assert row["entropy"] == pytest.approx(float(-(weights * weights.log()).sum()), abs=1e-6)
    assert row["neighbours"] == 4
    assert len(dataframes.concat(list(entropies(recorded, IDS, heads="mean")))) == 2 * 5


def colours(path: Path) -> set[int]:
    return set(np.unique((imread(path)[..., :3] * 255).round() @ [65536, 256, 1]).astype(int).tolist())


def texts(figure) -> list[str]:
    return [text.get_text() for text in [*figure.texts, *figure.axes[0].texts]]


def test_a_neighbourhood_is_drawn(tmp_path: Path) -> None:
    found, ids = star(6)
    figure = neighbourhood(found, "0", classes=[f"class {i % 3}" for i in range(7)])
    plots.save(figure, tmp_path / "node.png")
    seen = colours(tmp_path / "node.png")
    assert len(seen) > 100
    assert {0x4F86C6, 0x5FAE74} <= seen  # classes
    mean = found.head()
    heaviest = found.source[(mean * ~found.is_self_loop).argmax()]
    said = texts(figure)
    assert any(text.startswith(f"node 0 attends to {ids[heaviest]}") for text in said)
    assert f"itself {mean[found.is_self_loop & (found.target == 0)].item():.2f}".replace("0.", ".") in said
    assert "all 6 neighbours" in said
    assert set(ids) <= set(said)


def test_width_is_weight_and_colour_is_gold() -> None:
    found, _ = star(9)
    lines = neighbourhood(found, "0", head=1).axes[0].lines
    weights = found.weights[(found.target == 0) & ~found.is_self_loop, 1].sort(descending=True).values
    widths = torch.tensor([line.get_linewidth() for line in lines])
    torch.testing.assert_close((widths - 1) / 15, weights, check_dtype=False)
    gold = [line.get_color() == plots.GOLD for line in lines]
    order = (found.weights[:, 1] * ((found.target == 0) & ~found.is_self_loop)).argsort(descending=True)[:9]
    assert found.gold is not None
    assert gold == found.gold[order].tolist()
    assert sum(gold) == 3


def test_gold_has_a_legend_where_it_is_known() -> None:
    for known in (True, False):
        figure = neighbourhood(star(4, gold=known)[0], "0")
        labels = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
        assert ("where it should look (gold)" in labels) == known


def test_many_neighbours_are_counted(tmp_path: Path) -> None:
    found, _ = star(40, names="paper-{}")
    figure = neighbourhood(found, "paper-0", classes=["", *["theory"] * 40])
    assert len(figure.axes[0].lines) == 20
    weights = found.head()[(found.target == 0) & ~found.is_self_loop].sort(descending=True).values
    rest = f"{weights[20:].sum():.2f}".removeprefix("0")
    assert f"the 20 heaviest of 40 neighbours; the other 20 share {rest}" in texts(figure)
    plots.save(figure, tmp_path / "many.png")
    assert len(colours(tmp_path / "many.png")) > 100


def test_nodes_with_little_around_them(tmp_path: Path) -> None:
    found, _ = star(1)
    plots.save(neighbourhood(found, "1"), tmp_path / "alone.png")  # its self-loop only
    assert "no neighbour" in texts(neighbourhood(found, "1"))
    support = EdgeSupport.from_edges(torch.tensor([[0], [1]]), 2)
    bare = label_map(AttentionMap("a", torch.ones(1, 1), ("edge", "head"), support, (0,)), {"target": ["$a$", "b"]})
    plots.save(neighbourhood(bare, "$a$"), tmp_path / "bare.png")
    with pytest.raises(KeyError, match="there is no target 'c'"):
        neighbourhood(bare, "c")


def test_tables_of_too_many_rows_have_the_heaviest_neighbours(recorded) -> None:
    names = {"source": IDS, "target": IDS}
    maps = {site: label_map(each, names, layer=number) for number, (site, each) in enumerate(recorded.items())}
    whole = dataframes.concat(list(edges(maps)))
    degrees = torch.bincount(next(iter(recorded.values())).support.target, minlength=len(IDS))
    assert limits(maps, degrees, len(whole)) == (None, None, [])
    found = limits(maps, degrees, len(whole) - 1)
    assert found.neighbours is not None
    assert found.neighbours < int(degrees.max())
    few = dataframes.concat(list(edges(maps, most_neighbours=found.neighbours)))
    assert len(few) < len(whole)
    assert f"{found.neighbours} heaviest neighbour" in found.lines[0]
    assert "raise --rows" in found.lines[0]
    by = ["layer", "head", "target"]
    expected = whole.sort_values("weight", ascending=False).groupby(by, observed=True).head(found.neighbours)
    assert set(few.itertuples(index=False, name=None)) == set(expected.itertuples(index=False, name=None))
    nodes = dataframes.concat(list(entropies(maps, most_nodes=2)))
    assert len(nodes) == 2 * len(whole[["layer", "head"]].drop_duplicates())
