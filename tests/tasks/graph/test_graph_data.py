"""Data sets of graphs: batches and their supports, splits, vocabularies, the user's own files, real Cora."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from zoo.errors import DataError
from zoo.tasks.batching import BatchOptions
from zoo.tasks.graph.batch import Data, as_batch
from zoo.tasks.graph.datamodule import GraphData, GraphSource, graph_files, planted_graph
from zoo.tasks.graph.graph import SPLITS, Graph
from zoo.tasks.graph.sparse_features import SparseFeatures

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "data" / "samples" / "graph"
ZOO_DATA = os.environ.get("ZOO_DATA")  # before `cli` takes it out of the environment
PLANTED = {"nodes": 240, "classes": 3, "tags": 4, "trusted": 2, "distractors": 2, "width": 12, "max_epochs": 7}


def graph(**changed: Any) -> Graph:
    """Four nodes with a repeated edge, a self-loop and gold edges."""
    return Graph(
        **{
            "features": torch.arange(8.0).view(4, 2),
            "feature_names": ("x", "y"),
            "edges": torch.tensor([[3, 0, 2, 0, 1], [0, 1, 2, 1, 0]]),
            "labels": torch.tensor([0, 1, -1, 1]),
            "label_names": ("red", "blue"),
            "split": torch.tensor([0, 1, -1, 2]),
            "ids": ("a", "b", "c", "d"),
            "gold": torch.tensor([True, False, True, True, False]),
            **changed,
        }
    )


def test_gold_follows_its_edge() -> None:
    """Gold follows its edge when edges are sorted by target and self-loops replaced."""
    for self_loops in (True, False):
        batch = as_batch(graph(), self_loops=self_loops)
        support = batch.support
        assert isinstance(batch, Data)
        pairs = list(zip(support.source.tolist(), support.target.tolist(), batch.gold.tolist(), strict=True))
        given = [(3, 0, True), (0, 1, False), (0, 1, True), (1, 0, False)]
        loops = [(node, node, False) for node in range(4)] if self_loops else [(2, 2, True)]
        assert sorted(pairs) == sorted(given + loops)
        original = graph().edges
        for edge, order in enumerate(support.order.tolist()):
            if order >= 0:
                assert original[:, order].tolist() == [int(support.source[edge]), int(support.target[edge])]


def test_a_batch_without_gold() -> None:
    batch = as_batch(graph(gold=None))
    assert "gold" not in batch
    assert batch.ids.tolist() == ["a", "b", "c", "d"]
    assert batch.num_nodes == 4


def test_sparse_features_stay_sparse_and_are_not_copied_by_the_device() -> None:
    dense = torch.tensor([[0.0, 2.0], [0.0, 0.0], [1.0, 0.0], [3.0, 4.0]])
    batch = as_batch(graph(features=dense.to_sparse_csr()))
    assert isinstance(batch.x, SparseFeatures)
    assert batch.x.shape == (4, 2)
    assert len(batch.x.values) == 4
    assert torch.equal(batch.x.project(torch.eye(2).unsqueeze(1)).squeeze(1), dense)
    data = GraphData(GraphSource(lambda **_: graph()), BatchOptions(max_epochs=1))
    assert data.transfer_batch_to_device(batch, torch.device("cpu"), 0) is batch
    moved = batch.to("meta")
    assert moved.x.values.is_meta
    assert moved.support.source.is_meta


def test_splits_share_the_graph_and_score_their_own_nodes() -> None:
    data = planted_graph(**PLANTED)  # type: ignore[arg-type]
    data.setup()
    batches = {split: next(iter(data.loader(split))) for split in (*SPLITS, "all")}
    assert [len(batches[split].nodes) for split in (*SPLITS, "all")] == [144, 48, 48, 240]
    assert data.train_size() == 144
    nodes = torch.cat([batches[split].nodes for split in SPLITS])
    assert torch.equal(nodes.sort().values, batches["all"].nodes)
    for split, number in SPLITS.items():
        assert (batches[split].split[batches[split].nodes] == number).all()
        assert batches[split].x is batches["all"].x  # nothing is copied
    for name, loader in (("train", data.train_dataloader()), ("val", data.val_dataloader())):
        (batch,) = loader
        assert torch.equal(batch.nodes, batches[name].nodes)


def test_a_split_without_nodes_has_no_batches() -> None:
    data = GraphData(GraphSource(lambda **_: graph(split=torch.tensor([0, 0, -1, 2]))), BatchOptions(max_epochs=1))
    assert len(data.loader("val")) == 0
    assert list(data.loader("val")) == []
    assert len(data.loader("test")) == len(data.loader("all")) == 1


def test_what_the_checkpoint_must_know() -> None:
    data = GraphData(GraphSource(lambda **_: graph()), BatchOptions(max_epochs=5))
    assert data.sizes() == {"features": 2, "classes": 2}
    state = data.state()
    assert state == {"labels": ["red", "blue"], "features": ["x", "y"], "normalised": False}
    assert json.loads(json.dumps(state)) == state
    assert data.max_epochs == 5


def test_data_is_read_once_and_with_the_vocabulary_of_the_checkpoint() -> None:
    read: list[Any] = []

    def reader(labels: Any, feature_names: Any) -> Graph:
        read.append((labels, feature_names))
        return graph(label_names=labels or ("red", "blue"), feature_names=feature_names or ("x", "y"))

    data = GraphData(GraphSource(reader), BatchOptions(max_epochs=1))
    for _ in range(3):
        data.setup()
        data.sizes()
    assert read == [(None, None)]
    data.restore({"labels": ["blue", "red"], "features": ["y"], "normalised": False})
    data.setup()
    assert read[1:] == [(["blue", "red"], ["y"])]


def test_generated_data_serves_only_a_model_of_its_own_names() -> None:
    data = planted_graph(**PLANTED)  # type: ignore[arg-type]
    state = data.state()
    data.restore(state)
    assert data.sizes() == {"features": 12, "classes": 3}
    data.restore(state | {"labels": ["cat", "dog"]})
    with pytest.raises(DataError, match=r"trained on other labels than this data has \(2 against 3\); fine-tune it"):
        data.setup()


def test_own_files_in_the_order_of_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,label,split,x,y\na,red,train,1,2\nb,blue,val,3,4\nc,red,test,5,6\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,a\nb,a\n")
    first = graph_files(nodes=str(tmp_path / "nodes.csv"), edges=str(tmp_path / "edges.csv"), max_epochs=3)
    state = {"labels": ["red", "green", "blue"], "features": ["y", "x"], "normalised": False}
    data = first.from_files([tmp_path], state)
    (batch,) = data.predict_dataloader()
    assert batch.x.tolist() == [[2, 1], [4, 3], [6, 5]]
    assert batch.y.tolist() == [0, 2, 0]
    assert data.sizes() == {"features": 2, "classes": 3}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_own_files_are_read_as_in_training(tmp_path: Path, directed: bool, normalise: bool) -> None:
    (tmp_path / "nodes.csv").write_text("id,label,split,x,y\na,red,train,1,3\nb,red,val,2,2\nc,red,test,0,8\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\na,b\nc,b\n")
    options: dict[str, Any] = {"directed": directed, "normalise": normalise, "max_epochs": 1, "self_loops": False}
    trained = graph_files(nodes=str(tmp_path / "nodes.csv"), edges=str(tmp_path / "edges.csv"), **options)
    assert trained.state()["normalised"] is normalise
    mine = trained.from_files([tmp_path], trained.state())
    for data in (trained, mine):
        (batch,) = data.predict_dataloader()
        pairs = sorted(zip(batch.support.source.tolist(), batch.support.target.tolist(), strict=True))
        assert pairs == ([(0, 1), (0, 1), (2, 1)] if directed else [(0, 1), (1, 0), (1, 2), (2, 1)])
        assert batch.x[0].tolist() == ([0.25, 0.75] if normalise else [1, 3])


def test_own_files_are_a_folder(tmp_path: Path) -> None:
    data = planted_graph(**PLANTED)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"give the folder that holds nodes\.csv and edges\.csv"):
        data.from_files([tmp_path / "nodes.csv"], data.state())


def test_self_loops_are_optional(cli: Any) -> None:
    for self_loops, edges in ((True, 240 * 5), (False, 240 * 4)):
        data = planted_graph(**PLANTED, self_loops=self_loops)  # type: ignore[arg-type]
        (batch,) = data.predict_dataloader()
        assert len(batch.support.source) == edges
        assert int(batch.gold.sum()) == 240 * 2


def test_the_command_of_the_data_page_trains(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the command as documented, from the root of the repository, with another output folder."""
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    python train\.py (.*data=graph_files.*)$", text, re.M)
    monkeypatch.chdir(ROOT)
    overrides = [*shlex.split(command), "data.max_epochs=40", "logger=csv", f"run_dir={tmp_path}/run"]
    assert cli("train", *overrides).code == 0
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert found["train/accuracy"] == 1.0
    assert found["test/accuracy"] > 0.6  # a third would be chance


def test_the_sample_of_words_trains_too(cli: Any) -> None:
    data = [f"data.nodes={SAMPLES}/nodes_sparse.csv", f"data.edges={SAMPLES}/edges.csv", "data.normalise=true"]
    overrides = [*data, "data.max_epochs=40", "logger=csv", "run_dir=run"]
    assert cli("train", "model=gatv2", "data=graph_files", *overrides).code == 0
    assert json.loads(Path("run/metrics.json").read_text())["train/accuracy"] > 0.9


@pytest.mark.real
def test_the_recipe_for_cora_runs_and_leaves_the_data_alone(cli: Any) -> None:
    if ZOO_DATA is None:
        pytest.skip("ZOO_DATA is not set")
    root = Path(ZOO_DATA).resolve()
    before = {path: path.stat().st_mtime_ns for path in (root / "planetoid").rglob("*")}
    done = cli("train", "experiment=gat_cora", "data.max_epochs=3", f"paths.data={root}", "run_dir=run")
    assert done.code == 0
    found = json.loads(Path("run/metrics.json").read_text())
    assert found["parameters"] == 1433 * 64 + 64 + 2 * 64 + 64 * 7 + 7 + 2 * 7
    assert "truth/edge_auc" not in found
    assert 0.1 < found["test/accuracy"] <= 1
    assert cli("predict", "run/checkpoints/best.ckpt", "--root", root, "--out", "cora.csv").code == 0
    assert len(Path("cora.csv").read_text().splitlines()) == 2709
    assert {path: path.stat().st_mtime_ns for path in (root / "planetoid").rglob("*")} == before
