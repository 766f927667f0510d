"""`zoo maps` on graphs: each weight with its edge, in the user's own ids; heads, layers, budget, tables, pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

import zoo
import zoo.maps
from zoo.attention import record
from zoo.cli.main import main
from zoo.config.instantiate import build

TINY = ["data.nodes=240", "data.classes=3", "data.tags=4", "data.trusted=2", "data.distractors=2", "data.width=12"]
SMALL = ["model.net.dim=4", "model.net.heads=2", "data.max_epochs=12", "logger=csv"]
KEYS = ["layer", "head", "source", "target"]
# ids as people have them: with spaces, quotes, slashes, and numbers that are not positions
IDS = ["10", "9", "a b", "a/b", "Zoë", 'the "big" one', "x,y", "..", "7", "=1+1"]


def trained(folder: Path, *overrides: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", *overrides, *SMALL, "run_dir=run"]) == 0
    return folder / "run" / "checkpoints" / "best.ckpt"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("planted"), "model=gat", *TINY)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directed graph with a repeated edge, a self-loop and a node without edges."""
    folder = tmp_path_factory.mktemp("own")
    nodes = pd.DataFrame({"id": IDS, "label": ["red", "blue"] * 5, "split": ["train"] * 4 + ["val"] * 3 + ["test"] * 3})
    nodes[["u", "v"]] = torch.randn(10, 2, generator=torch.Generator().manual_seed(0)).numpy()
    nodes.to_csv(folder / "nodes.csv", index=False)
    pairs = [(0, 1), (1, 2), (1, 2), (3, 2), (4, 0), (5, 5), (6, 2), (7, 4), (8, 0), (2, 0), (0, 8)]
    edges = pd.DataFrame([(IDS[source], IDS[target]) for source, target in pairs], columns=["source", "target"])
    edges.to_csv(folder / "edges.csv", index=False)
    data = [
        "data=graph_files",
        f"data.nodes={folder}/nodes.csv",
        f"data.edges={folder}/edges.csv",
        "data.directed=true",
    ]
    return trained(folder, "model=gatv2", *data)


def edges(folder: str | Path = "out") -> pd.DataFrame:
    """The table as pandas reads it; ids are text."""
    return pd.read_csv(Path(folder) / "edges.csv", dtype={"source": str, "target": str}, keep_default_na=False)


def recorded(checkpoint: Path) -> pd.DataFrame:
    """Returns recorded weights, edge by edge."""
    module = zoo.load(checkpoint)
    data = build(module.about["config"]["data"], "data")
    (batch,) = data.predict_dataloader()
    with torch.inference_mode(), record(module.net) as maps:
        module(batch)
    rows = []
    for layer, found in enumerate(maps.values()):
        ends = list(zip(found.support.source.tolist(), found.support.target.tolist(), strict=True))  # type: ignore[union-attr]
        for edge, (source, target) in enumerate(ends):
            for head in found.heads:
                weight = float(found.weights[edge, head])
                rows.append((layer, head, str(batch.ids[source]), str(batch.ids[target]), weight, source == target))
    return pd.DataFrame(rows, columns=[*KEYS, "weight", "is_self_loop"])


def check_equal(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """The same rows, whatever their order; equal edges are told apart by their weight."""
    first, second = (
        each.sort_values([*KEYS, "weight"]).reset_index(drop=True)[[*KEYS, "weight"]] for each in (one, other)
    )
    pd.testing.assert_frame_equal(first, second, check_dtype=False, rtol=1e-5, atol=1e-7)


def test_what_is_in_the_folder(cli: Any, planted: Path) -> None:
    done = cli("maps", planted, "--out", "out", "--pictures", "3")
    assert done.code == 0
    found = {path.relative_to("out").as_posix() for path in Path("out").rglob("*") if path.is_file()}
    pictures = {name for name in found if name.startswith("pictures/")}
    files = {"index.json", "maps.safetensors", "scores.json", "edges.csv", "entropy.csv", "words.txt"}
    assert found - pictures == files
    assert len(pictures) == 3
    assert all(Path("out", name).read_bytes().startswith(b"\x89PNG") for name in pictures)
    assert done.out.startswith("2 layers, 240 nodes, 3 pictures in out\n")
    assert Path("out/words.txt").read_text().splitlines() == [
        line for line in done.out.splitlines() if "attends to" in line
    ]


@pytest.mark.parametrize("data", ["planted", "own"])
def test_each_weight_stands_with_its_edge(cli: Any, data: str, request: pytest.FixtureRequest) -> None:
    checkpoint = request.getfixturevalue(data)
    assert cli("maps", checkpoint, "--out", "out", "--pictures", "0").code == 0
    found, expected = edges(), recorded(checkpoint)
    assert list(found.columns) == [*KEYS, "weight", "is_self_loop"]
    check_equal(found, expected)
    assert (found["is_self_loop"] == (found["source"] == found["target"])).all()
    sums = found.groupby(["layer", "head", "target"])["weight"].sum()
    assert sums.to_numpy() == pytest.approx(1.0, abs=1e-4)
    assert found["weight"].nunique() > 20  # the test needs different weights
    check_equal(zoo.maps.load("out").to_pandas().astype({"source": str, "target": str}), expected)


def test_repeated_edges_and_loops_in_the_users_ids(cli: Any, own: Path) -> None:
    assert cli("maps", own, "--out", "whole", "--pictures", "0").code == 0
    found = edges("whole")
    first = found[(found["layer"] == 0) & (found["head"] == 0)]
    assert len(first) == 10 + 10  # one loop a node, and the edges that are no loops
    assert set(first["target"]) == set(IDS)
    assert len(first[(first["source"] == "9") & (first["target"] == "a b")]) == 2
    assert len(first[(first["source"] == first["target"])]) == 10


def test_named_nodes_are_written_with_all_of_their_edges_and_nothing_else_is(cli: Any, own: Path) -> None:
    named = ["a b", "Zoë", "a/b", "7"]
    done = cli("maps", own, "--out", "out", "--ids", "a b, Zoë,a/b,7")
    assert done.code == 0
    expected = recorded(own)
    expected = expected[expected["target"].isin(named)]
    check_equal(edges(), expected)
    (example,) = zoo.maps.load("out").values()
    nodes = [*named, *sorted(set(expected["source"]) - set(named), key=IDS.index)]
    assert all(list(each.labels["source"]) == nodes for each in example.values())
    assert done.out.startswith(f"2 layers, {len(nodes)} nodes, 4 pictures in out\n")
    entropy = pd.read_csv("out/entropy.csv", dtype={"node": str})
    assert entropy["node"].tolist() == named * (len(entropy) // len(named))
    loops = expected[expected["is_self_loop"]].groupby(["layer", "head", "target"])["weight"].sum()
    for row in entropy.itertuples():
        assert row.self_loop_share == pytest.approx(loops[row.layer, row.head, row.node], abs=1e-5)
    said = Path("out/words.txt").read_text().splitlines()
    assert [line.split(" attends to ")[0] for line in said] == ["node a b", "node Zoë", "node a/b", "node 7"]
    assert said[2] == "node a/b attends to itself (1.00): it has no choice"
    assert len(list(Path("out/pictures").iterdir())) == 4
    assert [path.name for path in Path.cwd().iterdir()] == ["out"]


def test_named_nodes_are_described_like_the_whole_graph(cli: Any, planted: Path) -> None:
    """Words, truth and gold are those of a pass over everything."""
    first, whole = cli("maps", planted, "--out", "whole", "--pictures", "3"), Path("whole/words.txt").read_text()
    nodes = [line.split(" ")[1] for line in whole.splitlines()]
    done = cli("maps", planted, "--out", "named", "--ids", ",".join(nodes), "--rows", "10")
    assert Path("named/words.txt").read_text() == whole
    of = [[line for line in each.out.splitlines() if line.startswith("truth/")] for each in (first, done)]
    assert of[0] == of[1] != []
    (everything,), (some,) = zoo.maps.load("whole").values(), zoo.maps.load("named").values()
    for site, found in some.items():
        gold = {(found.labels["source"][s], found.labels["target"][t]) for s, t in _golden(found)}
        assert gold == {
            (everything[site].labels["source"][s], everything[site].labels["target"][t])
            for s, t in _golden(everything[site])
            if everything[site].labels["target"][t] in nodes
        }


def _golden(found: Any) -> list[tuple[int, int]]:
    return list(zip(found.source[found.gold].tolist(), found.target[found.gold].tolist(), strict=True))


def test_the_average_of_the_heads(cli: Any, planted: Path) -> None:
    assert cli("maps", planted, "--out", "each", "--pictures", "0").code == 0
    assert cli("maps", planted, "--out", "mean", "--pictures", "0", "--heads", "mean").code == 0
    each, mean = edges("each"), edges("mean")
    assert mean["head"].nunique() == 1
    both = ["layer", "source", "target"]
    expected = each.groupby(both)["weight"].mean()
    assert mean.set_index(both)["weight"].sort_index().to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-4)
    assert len(each) == 1200 * 2 + 1200


@pytest.mark.parametrize(
    ("layers", "kept"), [("0", [0]), ("1", [1]), ("-1", [1]), ("layers.1.*", [1]), ("0,1", [0, 1])]
)
def test_some_layers_keep_their_numbers(cli: Any, planted: Path, layers: str, kept: list[int]) -> None:
    assert cli("maps", planted, "--out", "out", "--pictures", "1", f"--layers={layers}").code == 0
    found = edges()
    assert sorted(found["layer"].unique()) == kept
    expected = recorded(planted)
    check_equal(found, expected[expected["layer"].isin(kept)])


def test_parquet_holds_what_csv_holds(cli: Any, own: Path) -> None:
    for name in ("csv", "parquet"):
        assert cli("maps", own, "--out", name, "--pictures", "0", "--format", name).code == 0
    found = pd.read_parquet("parquet/edges.parquet")
    check_equal(found.astype({"source": str, "target": str}), edges("csv"))
    assert not Path("parquet/edges.csv").exists()
    assert Path("parquet/entropy.parquet").exists()


def test_entropy_by_node_and_head(cli: Any, planted: Path) -> None:
    assert cli("maps", planted, "--out", "out", "--pictures", "0").code == 0
    found = pd.read_csv("out/entropy.csv", dtype={"node": str}).set_index(["layer", "head", "node"])
    for key, group in list(edges().groupby(["layer", "head", "target"]))[::50]:
        expected = -sum(weight * math.log(weight) for weight in group["weight"] if weight > 0)
        row = found.loc[key]  # type: ignore[index]
        assert row["neighbours"] == len(group) == 5
        # in nats or as a share of what is possible: either way its order is known from the weights
        assert row["entropy"] == pytest.approx(expected, abs=1e-4)


def test_truth_is_that_of_the_run_and_of_the_table(cli: Any, planted: Path) -> None:
    """The score once more from the files alone, with scikit-learn: layer 0, heads averaged, test nodes, no loops."""
    done = cli("maps", planted, "--out", "out", "--pictures", "0", "--heads", "mean")
    scores = json.loads(Path("out/scores.json").read_text())
    result = json.loads((planted.parents[1] / "metrics.json").read_text())
    assert scores["truth"]["edge_auc"] == pytest.approx(result["truth/edge_auc"], abs=1e-6)
    assert f"truth/edge_auc {result['truth/edge_auc']:.4f}" in done.out
    graph = build(zoo.load(planted).about["config"]["data"], "data").graph
    source, target = graph.edges.tolist()
    gold = {(graph.ids[s], graph.ids[t]) for s, t, g in zip(source, target, graph.gold.tolist(), strict=True) if g}
    test = {name for name, split in zip(graph.ids, graph.split.tolist(), strict=True) if split == 2}
    found = edges()
    found = found[(found["layer"] == 0) & (found["source"] != found["target"]) & found["target"].isin(test)]
    is_gold = [pair in gold for pair in zip(found["source"], found["target"], strict=True)]
    assert roc_auc_score(is_gold, found["weight"]) == pytest.approx(result["truth/edge_auc"], abs=1e-4)


def test_metrics_are_those_of_scikit_learn(cli: Any, planted: Path) -> None:
    result = json.loads((planted.parents[1] / "metrics.json").read_text())
    assert cli("predict", planted, "--out", "all.csv").code == 0
    found = pd.read_csv("all.csv")
    for split in ("train", "val", "test"):
        rows = found[found["split"] == split]
        assert accuracy_score(rows["label"], rows["prediction"]) == pytest.approx(result[f"{split}/accuracy"], abs=1e-6)
        f1 = f1_score(rows["label"], rows["prediction"], average="macro")
        assert f1 == pytest.approx(result[f"{split}/f1_macro"], abs=1e-6)
        assert rows["loss"].mean() == pytest.approx(result[f"{split}/loss"], abs=1e-4)


def test_a_budget_that_holds_one_layer_says_what_it_left_out(cli: Any, planted: Path) -> None:
    done = cli("maps", planted, "--out", "out", "--pictures", "0", "--budget", 1200 * 2 * 4)
    assert (done.code, done.err) == (0, "")
    assert "the budget of 9,600 bytes left out layers.1.attend 4,800" in done.out
    assert set(edges()["layer"]) == {0}
    assert zoo.maps.load("out").cut == {"layers.1.attend": 4800}


def untouched(folder: Path) -> dict[str, bytes]:
    return {path.as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--budget", "10"],
            "a budget of 10 bytes holds no layer of this graph; they take layers.0.attend 9,600, layer",
        ),
        (["--layers", "2"], "layers: the model has 2 attention sites, there is no number 2"),
        (["--layers", "encoder"], "no attention site is called 'encoder'; there are: layers.0.attend, layers.1.attend"),
        (["--ids", "3,240"], "there is no node '240'"),
    ],
)
def test_options_that_do_not_fit(cli: Any, planted: Path, options: list[str], said: str) -> None:
    done = cli("maps", planted, "--out", "out", *options)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert len(done.err) < 400
    assert not Path("out").exists()


def test_existing_folders(cli: Any, planted: Path) -> None:
    assert cli("maps", planted, "--out", "out", "--pictures", "2").code == 0
    before = untouched(Path("out"))
    done = cli("maps", planted, "--out", "out")
    assert done.code == 2
    assert "out: holds maps already" in done.err
    assert untouched(Path("out")) == before
    Path("out/notes.txt").write_text("mine")
    assert cli("maps", planted, "--out", "out", "--pictures", "0", "--layers", "0", "--overwrite").code == 0
    assert Path("out/notes.txt").read_text() == "mine"
    assert set(edges()["layer"]) == {0}
    assert not Path("out/pictures").exists()

    Path("other").mkdir()
    Path("other/thesis.txt").write_text("years of work")
    done = cli("maps", planted, "--out", "other", "--overwrite")
    assert done.code == 2
    assert "other: is not empty and does not hold maps" in done.err
    assert untouched(Path("other")) == {"other/thesis.txt": b"years of work"}
    done = cli("maps", planted, "--out", "other/thesis.txt")
    assert (done.code, Path("other/thesis.txt").read_text()) == (2, "years of work")


def test_maps_of_other_data(cli: Any, own: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "nodes.csv").write_text("id,v,u\np,1,2\nq,3,4\nr,5,6\n")
    (mine / "edges.csv").write_text("source,target\np,q\nr,q\n")
    assert cli("maps", own, "--data", mine, "--out", "out").code == 0
    found = edges()
    first = found[(found["layer"] == 0) & (found["head"] == 0)]
    pairs = set(zip(first["source"], first["target"], strict=True))
    assert pairs == {("p", "q"), ("r", "q"), ("p", "p"), ("q", "q"), ("r", "r")}  # directed, as in training
    assert json.loads(Path("out/scores.json").read_text())["truth"] == {}
