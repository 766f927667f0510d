"""A node without some of its neighbours: as in a graph that never had those edges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from graph_net_cases import CLASSES, FEATURES, NODES, net
from torch import Tensor

from zoo.attention import EdgeSupport
from zoo.cli.main import main
from zoo.tasks.graph import perturbation
from zoo.tasks.graph.batch import GraphBatch
from zoo.tasks.graph.perturbation import PerturbableNode
from zoo.tasks.graph.sparse_features import SparseFeatures
from zoo.tasks.graph.task import NodeClassifier

NODE = 3


@pytest.fixture(params=["dense", "sparse"])
def x(request: pytest.FixtureRequest) -> Any:
    dense = torch.randn(NODES, FEATURES) * (torch.rand(NODES, FEATURES) < 0.7)
    return dense if request.param == "dense" else SparseFeatures.from_csr(dense.to_sparse_csr())


def module(**options: Any) -> NodeClassifier:
    made = NodeClassifier(
        net=lambda features, classes: net(**options),
        optimization=None,  # type: ignore[arg-type]
        features=FEATURES,
        classes=CLASSES,
    )
    return made.eval()


def graph(x: Any, support: EdgeSupport) -> GraphBatch:
    return GraphBatch(x=x, y=torch.zeros(NODES, dtype=torch.int64), support=support)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_neighbours_left_out(
    x: Any, layers: int, self_loops: bool, edges: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perturbation, "_EDGES", 60)  # few copies at a time
    made = module(layers=layers)
    support = EdgeSupport.from_edges(edges, NODES, self_loops=self_loops)
    found = PerturbableNode(made, graph(x, support), NODE)
    source, target = support.source.long(), support.target.long()
    into = ((target == NODE) & (source != NODE)).nonzero().squeeze(1)
    assert len(into) > 2

    explained = made.explain(graph(x, support)).weights[into, 0]
    torch.testing.assert_close(found.attention, explained.float())
    keep = torch.rand(9, len(into)) < 0.5
    keep[0] = True
    scores = found.score(keep)
    answer = made.net(x, support)[NODE].argmax()
    for row, score in zip(keep, scores, strict=True):
        is_left = torch.ones(len(source), dtype=torch.bool)
        is_left[into[~row]] = False
        fewer = EdgeSupport.from_edges(torch.stack([source, target])[:, is_left], NODES)
        expected = made.net(x, fewer)[NODE].softmax(-1)[answer]
        torch.testing.assert_close(score, expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
def test_degrees_are_those_of_the_whole_graph(x: Any, edges: Tensor) -> None:
    """What GCN divides by belongs to the graph, and is the same in every copy."""
    made = module(mechanism="degree")
    support = EdgeSupport.from_edges(edges, NODES, self_loops=True)
    found = PerturbableNode(made, graph(x, support), NODE)
    everything = torch.ones(2, len(found.attention), dtype=torch.bool)
    expected = made.net(x, support)[NODE].softmax(-1).max()
    torch.testing.assert_close(found.score(everything), expected.expand(2), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
def test_the_gradient_is_that_of_scaled_neighbours(x: Any, edges: Tensor) -> None:
    made = module()
    support = EdgeSupport.from_edges(edges, NODES, self_loops=True)
    found = PerturbableNode(made, graph(x, support), NODE)
    gradient = found.gradient()
    source, target = support.source.long(), support.target.long()
    neighbours = source[(target == NODE) & (source != NODE)].tolist()

    def passed(node: int, scale: float) -> Tensor:
        by_node = torch.ones(NODES).index_fill(0, torch.tensor([node]), scale)
        if isinstance(x, SparseFeatures):
            scaled: Any = SparseFeatures(x.values * by_node[x.pattern.rows.long()], x.pattern)
        else:
            scaled = x * by_node[:, None]
        return made.net(scaled, support)[NODE].log_softmax(-1)[found.answer].detach()

    for value, node in zip(gradient, neighbours, strict=True):
        slope = (passed(node, 1 + 1e-6) - passed(node, 1 - 1e-6)) / 2e-6
        torch.testing.assert_close(value, slope.abs(), rtol=1e-4, atol=1e-7)


SMALL = ["nodes=1000", "classes=3", "tags=4", "trusted=2", "distractors=2", "width=12"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`trained(attention, epochs)` -> what `zoo maps --faithfulness` finds of a trained model."""

    def found(attention: str, epochs: int) -> tuple[dict[tuple[str, str], dict[str, float]], pd.DataFrame]:
        folder = tmp_path_factory.mktemp(attention)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            options = [*(f"data.{each}" for each in SMALL), "model.net.dim=4", "model.net.heads=2", "logger=csv"]
            options += [f"attention={attention}", f"data.max_epochs={epochs}", "run_dir=run"]
            assert main(["train", "model=gat", *options]) == 0
            command = ["maps", "run/checkpoints/best.ckpt", "--out", "maps", "--pictures", "1", "--faithfulness", "200"]
            assert main(command) == 0
        means = json.loads((folder / "maps" / "scores.json").read_text())["faithfulness"]
        rows = pd.read_csv(folder / "maps" / "faithfulness.csv", keep_default_na=False, na_values=[""])
        return {(each["ranking"], each["measure"]): each for each in means}, rows

    return found


# slow tier: trains until something is learned; the test after it takes the same way with a stored model
@pytest.mark.slow
def test_attention_of_a_planted_graph_is_faithful_and_uniform_weights_are_not(
    trained: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    means, rows = trained("gat", epochs=120)
    said = capsys.readouterr().out
    ours, chance = (means[ranking, "comprehensiveness"] for ranking in ("map", "random"))
    assert ours["mean"] > chance["mean"] + 2 * (ours["standard_error"] + chance["standard_error"])
    assert means["map", "sufficiency"]["mean"] < means["random", "sufficiency"]["mean"]
    assert means["", "fall_with_uniform_weights"]["mean"] > 0.1
    assert means["", "change_with_permuted_weights"]["mean"] > 0.05
    assert "the answer depends on the neighbours that the map ranks first" in said
    assert rows.id.nunique() > 150
    first = rows[(rows.ranking == "map") & (rows.measure == "comprehensiveness")]
    assert first.value.mean() == pytest.approx(ours["mean"])

    means, rows = trained("uniform", epochs=20)
    said = capsys.readouterr().out
    ours, chance = (means[ranking, "comprehensiveness"] for ranking in ("map", "random"))
    assert abs(ours["mean"] - chance["mean"]) < 2 * (ours["standard_error"] + chance["standard_error"])
    assert means["", "fall_with_uniform_weights"]["mean"] == 0.0
    assert means["", "change_with_permuted_weights"]["mean"] < 1e-6
    assert rows[rows.measure == "kendall_tau_gradient"].value.isna().all()
    assert "the map does not say what the answer depends on" in said


GAT = Path(__file__).parents[2] / "checkpoints" / "files" / "format2" / "gat.ckpt"


def test_the_ids_that_are_asked_for_are_measured(cli: Any) -> None:
    done = cli("maps", GAT, "--out", "maps", "--ids", "3,17", "--faithfulness")
    assert done.code == 0, done.err
    assert "faithfulness over 2 nodes" in done.out
    rows = pd.read_csv("maps/faithfulness.csv")
    assert list(dict.fromkeys(rows.id)) == [3, 17]
    assert cli("maps", GAT, "--out", "none", "--pictures", 0).code == 0
    assert "faithfulness" not in json.loads(Path("none/scores.json").read_text())
    assert not Path("none/faithfulness.csv").exists()


@pytest.mark.parametrize("count", ["0", "-3"])
def test_no_example_is_refused(cli: Any, count: str) -> None:
    done = cli("maps", GAT, "--out", "maps", f"--faithfulness={count}")
    assert (done.code, done.err) == (2, f"zoo: --faithfulness={count}: write how many examples, 1 or more\n")
    assert not Path("maps").exists()
