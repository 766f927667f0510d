"""Penalties on attention by configuration: what they change, what is logged, and what is refused."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from zoo.attention import (
    AttentionFactory,
    AttentionMap,
    DenseSupport,
    EntropyPenalty,
    MultiheadAttention,
    ScaledDot,
    Softmax,
    record,
)
from zoo.checkpoints import checkpoint
from zoo.config import compose
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Task
from zoo.training.attention_penalties import PENALTIES, add_attention_penalties
from zoo.training.run_config import get_active_penalties


class Sequences(Task):
    """Any task with dense attention: it says nothing of penalties."""

    primary = "val/accuracy"
    primary_mode = "max"
    headline = ("loss",)

    def __init__(self) -> None:
        super().__init__(optimization=OptimizerConfig(optimizer=torch.optim.Adam))
        torch.manual_seed(0)
        self.layer = MultiheadAttention(dim=8, heads=2, attend=AttentionFactory(score=ScaledDot, normalizer=Softmax))
        self.logged: dict[str, float] = {}

    def log(self, name: str, value: Any, **_: Any) -> None:  # type: ignore[override]
        self.logged[name] = float(value)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        context, _ = self.layer(batch["x"], None, DenseSupport.from_key_mask(batch["mask"]))
        return context.square().mean()

    def gold_attention(self, batch: Any) -> dict[str, Tensor]:
        return {"layer.attend": batch["gold"]} if "gold" in batch else {}

    def query_masks(self, batch: Any) -> dict[str, Tensor]:
        return {"layer.attend": batch["mask"]}

    def explain(self, batch: Any) -> AttentionMap:
        raise NotImplementedError

    def predict_step(self, batch: Any, batch_idx: int = 0) -> dict[str, list[Any]]:
        raise NotImplementedError

    def vocabularies(self) -> dict[str, dict[str, int]]:
        return {}


def batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    return {"x": torch.randn(2, 4, 8, generator=generator), "mask": mask, "gold": torch.eye(4).bool().expand(2, 4, 4)}


@pytest.mark.parametrize("name", PENALTIES)
def test_a_penalty_is_weighed_added_and_logged(name: str) -> None:
    plain, module = Sequences(), Sequences()
    add_attention_penalties(module, {name: 2.5, "layers": ["layer.*"]})
    loss = module.training_step(batch(), 0)
    value = module.logged[f"train/penalty_{name}"]
    assert list(module.logged) == [f"train/penalty_{name}"]
    assert loss.item() == pytest.approx(plain.training_step(batch(), 0).item() + 2.5 * value)
    with record(plain) as maps:
        plain.training_step(batch(), 0)
    given = [maps["layer.attend"], *([batch()["gold"]] if name.startswith("guidance") else []), batch()["mask"]]
    assert value == pytest.approx(float(getattr(zoo.attention, PENALTIES[name])()(*given).mean), abs=1e-6)
    loss.backward()
    assert module.layer.key.weight.grad is not None
    assert module.layer.key.weight.grad.any()


def test_the_fused_kernel_is_left_for_penalties_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    kernel = torch.nn.functional.scaled_dot_product_attention
    counted: Callable[..., Tensor] = lambda *args, **options: (calls.append(1), kernel(*args, **options))[1]  # noqa: E731
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    for weights, expected in (({}, 1), ({"entropy": 0.0, "layers": None}, 1), ({"entropy": 0.1}, 0)):
        calls.clear()
        module = Sequences()
        add_attention_penalties(module, weights)
        assert ("training_step" in vars(module)) is (expected == 0)
        module.training_step(batch(), 0)
        assert len(calls) == expected


def test_a_step_without_a_loss_and_one_with_more() -> None:
    for gives in (None, {"loss": torch.ones(()), "more": 1}):
        module = Sequences()
        step = module.training_step

        def other(each: Any, number: int, step: Any = step, gives: Any = gives) -> Any:
            step(each, number)
            return gives

        module.training_step = other  # type: ignore[method-assign]
        add_attention_penalties(module, {"entropy": 1.0})
        found = module.training_step(batch(), 0)
        if gives is None:
            assert found is None
        else:
            assert found["more"] == 1
            assert found["loss"].item() == pytest.approx(1 + module.logged["train/penalty_entropy"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"entropy": "much"}, "penalty.entropy='much': write a number"),
        ({"entropy": float("nan")}, "penalty.entropy=nan: write a number"),
        ({"coverage": True}, "penalty.coverage=True: write a number"),
        ({"coverage": 1.0, "layers": 0}, "penalty.layers=0: write a list"),
        ({"coverage": 1.0, "layers": ["decoder.*"]}, "penalty.layers: no attention site is called 'decoder"),
        ({"coverage": 1.0, "layers": [3]}, "penalty.layers: the model has 1 attention sites"),
    ],
)
def test_options_that_do_not_fit_are_refused_at_the_start(options: dict[str, Any], message: str) -> None:
    with pytest.raises(zoo.errors.ConfigError) as raised:
        add_attention_penalties(Sequences(), options)
    assert message in str(raised.value)


def test_what_cannot_be_served_is_refused_at_the_first_batch() -> None:
    module = Sequences()
    add_attention_penalties(module, {"guidance_squared": 1.0})
    without = {name: x for name, x in batch().items() if name != "gold"}
    with pytest.raises(zoo.errors.ConfigError, match="guidance_squared: the data has no gold attention"):
        module.training_step(without, 0)
    module = Sequences()
    module.layer = torch.nn.Linear(2, 2)  # type: ignore[assignment]
    with pytest.raises(zoo.errors.ConfigError, match=r"penalty.entropy: the model has no attention"):
        add_attention_penalties(module, {"entropy": 1.0})


def test_every_penalty_of_the_configuration_exists_and_is_off() -> None:
    composed = compose.compose(["model=gat"])["penalty"]
    assert set(composed) == {*PENALTIES, "layers"}
    assert get_active_penalties(composed) == {}
    assert get_active_penalties({}) == {}
    assert compose.compose(["model=gat", "penalty.entropy=0.1"])["penalty"]["entropy"] == 0.1


def entropy_of(run_dir: Path) -> float:
    """Of the trained model's first layer, on its own data."""
    module = checkpoint.load(run_dir / "checkpoints" / "last.ckpt")
    data = zoo.config.instantiate.build(compose.compose(["model=gat", *DATA])["data"], "data")
    data.setup()
    (each,) = data.loader("all")
    with torch.no_grad(), record(module) as maps:
        module(each)
    return float(EntropyPenalty()(next(iter(maps.values()))).mean)


DATA = ["data.nodes=240", "data.classes=3", "data.tags=4", "data.trusted=2", "data.distractors=2", "data.width=12"]


def test_a_run_is_drawn_where_the_penalty_pulls(cli: Any, tiny: list[str]) -> None:
    found = {}
    for factor in (-2.0, 0.0, 2.0):
        run_dir = Path(f"run{factor}")
        options = ["data.max_epochs=30", "optimizer.lr=0.03", f"run_dir={run_dir}"]
        assert cli("train", *tiny, *options, f"penalty.entropy={factor}").code == 0
        found[factor] = entropy_of(run_dir)
        with (run_dir / "metrics.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        logged = [float(row["train/penalty_entropy"]) for row in rows if row.get("train/penalty_entropy")]
        assert bool(logged) is (factor != 0)
        if factor > 0:
            assert logged[-1] < logged[0]
    assert found[2.0] < found[0.0] < found[-2.0]


def test_guidance_uses_the_gold_of_the_data(cli: Any, tiny: list[str]) -> None:
    """Fifteen epochs do not find the trusted neighbours; told of them, they do."""
    auc = {}
    for factor in (0.0, 5.0):
        options = ["data.max_epochs=15", "optimizer.lr=0.02", f"run_dir=run{factor}"]
        assert cli("train", *tiny, *options, f"penalty.guidance_cross_entropy={factor}").code == 0
        best = checkpoint.read(Path(f"run{factor}") / "checkpoints" / "best.ckpt")
        auc[factor] = best["zoo"]["metrics"]["truth/edge_auc"]
    assert auc[5.0] > auc[0.0] + 0.05


def test_minibatches_are_guided_by_their_own_edges() -> None:
    """Gold follows the edges of a receptive field."""
    data = zoo.config.instantiate.build({**compose.compose(["model=gat", *DATA, "data.batch_size=20"])["data"]}, "data")
    data.setup()
    module = zoo.config.instantiate.build(compose.compose(["model=gat", *DATA])["model"], "model", **data.sizes())
    each = next(iter(data.train_dataloader()))
    module.log = lambda *_, **__: None
    module.training_step(each, 0)
    ((site, gold),) = module.gold_attention(each).items()
    hop = each.field.hops[0]
    assert site == "net.layers.0.attend"
    assert len(gold) == len(hop.support.order)
    inputs = each.field.x
    for edge in range(0, len(gold), 7):
        whole = int(hop.edges[edge])
        assert bool(gold[edge]) == bool(each.gold[whole])
        source = int(each.support.source[whole])
        assert torch.equal(inputs[int(hop.support.source[edge])], each.x[source])


def test_a_misspelt_penalty_is_refused_with_the_nearest(cli: Any, tiny: list[str]) -> None:
    finished = cli("train", *tiny, "penalty.entropi=1.0")
    assert finished.code == 2
    assert "there is no option 'penalty.entropi'. Did you mean 'penalty.entropy'?" in finished.err


@pytest.mark.parametrize("more", [[], ["check=true"]])
def test_a_penalty_that_a_graph_cannot_have_is_refused(cli: Any, tiny: list[str], more: list[str]) -> None:
    finished = cli("train", *tiny, *more, "penalty.coverage=1.0")
    assert finished.code == 2
    assert "penalty.coverage: Coverage depends on the order of queries" in finished.out + finished.err


def test_a_run_is_continued_with_its_own_penalties(cli: Any, tiny: list[str]) -> None:
    assert cli("train", *tiny, "penalty.entropy=0.1", "run_dir=run").code == 0
    last = "resume=run/checkpoints/last.ckpt"
    refused = cli("train", *tiny, last, "penalty.entropy=0.2")
    assert refused.code == 2
    assert "penalty.entropy (0.1 there, 0.2 here)" in refused.err


def test_a_checkpoint_of_before_there_were_penalties_is_read_and_continued(cli: Any, tiny: list[str]) -> None:
    assert cli("train", *tiny, "run_dir=run").code == 0
    for path in Path("run/checkpoints").glob("*.ckpt"):
        content = checkpoint.read(path)
        del content["zoo"]["config"]["penalty"]
        content["zoo"]["config"]["names"].pop("penalty")
        checkpoint.write(path, content)
    assert cli("evaluate", "run/checkpoints/best.ckpt").code == 0
    assert cli("train", *tiny, "init=run/checkpoints/best.ckpt", "run_dir=tuned").code == 0
    assert cli("train", *tiny, "data.max_epochs=6", "resume=run/checkpoints/last.ckpt", "run_dir=run").code == 0
