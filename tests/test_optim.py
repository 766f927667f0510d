"""Schedules against their formulas, rates by layer, clipping and mixed precision."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from zoo.checkpoints import checkpoint
from zoo.errors import ConfigError
from zoo.optim import LRSchedule, OptimizerConfig
from zoo.tasks.base import Task
from zoo.training.callbacks.progress import Progress

TOTAL = 40


class Module(pl.LightningModule):
    """Three layers by name; `trainer` is as much of one as a schedule asks for."""

    primary, primary_mode, mode_of = "val/accuracy", "max", classmethod(Task.mode_of.__func__)  # type: ignore[attr-defined]

    def __init__(self, total: int = TOTAL) -> None:
        super().__init__()
        self.net = nn.ModuleDict({"stem": nn.Linear(2, 2), "body": nn.Linear(2, 2), "head": nn.Linear(2, 2)})
        self._total = total

    @property
    def trainer(self) -> Any:
        return SimpleNamespace(estimated_stepping_batches=self._total)


def rates_of(schedule: LRSchedule, steps: int = TOTAL, lr: float = 0.5) -> list[float]:
    """The learning rate with which each step is taken."""
    module = Module()
    optimizer = torch.optim.SGD(module.parameters(), lr=lr)
    scheduler = schedule.configure(optimizer, module)["scheduler"]
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_steps_multiply_at_their_milestones() -> None:
    expected = [0.5] * 20 + [0.05] * 10 + [0.005] * 10
    assert rates_of(LRSchedule("steps", milestones=[0.5, 0.75], gamma=0.1)) == pytest.approx(expected)


def test_a_warm_up_may_be_a_share_of_all_steps() -> None:
    assert rates_of(LRSchedule("cosine", warmup=0.25)) == pytest.approx(rates_of(LRSchedule("cosine", warmup=10)))


@pytest.mark.parametrize("warmup", [0, 1, 10])
@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_warm_up_and_cosine(warmup: int, floor: float) -> None:
    expected = []
    for step in range(TOTAL):
        if step < warmup:
            expected.append(0.5 * (step + 1) / warmup)
        else:
            angle = math.pi * (step - warmup) / (TOTAL - warmup)
            expected.append(0.5 * (floor + (1 - floor) * (1 + math.cos(angle)) / 2))
    assert rates_of(LRSchedule("cosine", warmup=warmup, min_lr_ratio=floor)) == pytest.approx(expected)
    assert max(expected) == expected[max(warmup - 1, 0)] == 0.5


def test_cosine_stays_at_its_floor() -> None:
    assert rates_of(LRSchedule("cosine", min_lr_ratio=0.2), steps=TOTAL + 20)[TOTAL:] == pytest.approx([0.1] * 20)


def test_inverse_square_root_is_that_of_the_paper() -> None:
    """Vaswani et al. 2017, eq. 3, where steps count from one: d^-0.5 min(step^-0.5, step warmup^-1.5)."""
    warmup = 10
    paper = [min(step**-0.5, step * warmup**-1.5) for step in range(1, TOTAL + 1)]
    found = rates_of(LRSchedule("inverse_sqrt", warmup=warmup))
    assert found == pytest.approx([rate * 0.5 / max(paper) for rate in paper])


def test_inverse_square_root_without_a_warm_up() -> None:
    assert rates_of(LRSchedule("inverse_sqrt"), steps=4) == pytest.approx([0.5 / math.sqrt(n) for n in (1, 2, 3, 4)])


@pytest.mark.parametrize("warmup", [0, 4])
def test_a_constant_rate(warmup: int) -> None:
    expected = [0.5 * (step + 1) / 4 for step in range(warmup)] + [0.5] * (TOTAL - warmup)
    assert rates_of(LRSchedule("constant", warmup=warmup)) == pytest.approx(expected)


@pytest.mark.parametrize(("monitor", "better"), [("val/loss", -1), ("val/accuracy", 1)])
def test_plateau_waits_and_then_shrinks_the_rate(monitor: str, better: int) -> None:
    module = Module()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.8)
    made = LRSchedule("plateau", gamma=0.25, patience=2, monitor=monitor).configure(optimizer, module)
    assert (made["interval"], made["monitor"]) == ("epoch", monitor)
    found = []
    for gain in [1, 2, 3, 3, 3, 3, 3, 4, 3, 3, 3]:
        made["scheduler"].step(10 + better * gain)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == pytest.approx([0.8] * 5 + [0.2] * 5 + [0.05])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": "cosin"}, "there is no schedule 'cosin'. Did you mean 'cosine'?"),
        ({"kind": "plateau", "warmup": 5}, "takes no warm-up"),
    ],
)
def test_schedules_that_do_not_exist(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LRSchedule(**options)
    assert said in str(caught.value)


def configured(**options: Any) -> tuple[Module, torch.optim.Optimizer]:
    module = Module()
    return module, OptimizerConfig(optimizer=partial(torch.optim.SGD, lr=0.8), **options).configure(module)


def test_rates_by_layer() -> None:
    """The last pattern that fits counts; every parameter is in one group."""
    module, optimizer = configured(lr_multipliers={"net.*": 0.5, "net.stem": 0.1, "*.bias": 0.01})
    rate = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    found = {name: rate.pop(id(parameter)) for name, parameter in module.named_parameters()}
    assert rate == {}
    assert found == pytest.approx(
        {
            "net.stem.weight": 0.08,
            "net.stem.bias": 0.008,
            "net.body.weight": 0.4,
            "net.body.bias": 0.008,
            "net.head.weight": 0.4,
            "net.head.bias": 0.008,
        }
    )


def test_a_schedule_keeps_the_ratios_of_rates() -> None:
    module = Module()
    schedule = LRSchedule("cosine", warmup=4)
    made = OptimizerConfig(
        optimizer=partial(torch.optim.SGD, lr=0.8), scheduler=schedule, lr_multipliers={"net.stem": 0.1}
    ).configure(module)
    optimizer, scheduler = made["optimizer"], made["lr_scheduler"]["scheduler"]
    assert isinstance(scheduler, LambdaLR)
    for step in range(10):
        fast, slow = (group["lr"] for group in optimizer.param_groups)
        assert slow == pytest.approx(0.1 * fast)
        assert fast == pytest.approx(0.8 * schedule.rate(step, TOTAL))
        optimizer.step()
        scheduler.step()


class Staged(Module):
    def layer_groups(self) -> list[str]:
        return ["net.stem", "net.body", "net.head"]


def test_rates_fall_with_depth_and_patterns_count_on_top() -> None:
    module = Staged()
    optimization = OptimizerConfig(
        optimizer=partial(torch.optim.AdamW, lr=0.4, weight_decay=0.1),
        layer_decay=0.5,
        lr_multipliers={"net.body.bias": 0.1},
        no_weight_decay=["*.bias"],
    )
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    groups = optimization.configure(module).param_groups
    found = {names[id(p)]: (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    expected = {
        "net.stem.weight": (0.1, 0.1),
        "net.stem.bias": (0.1, 0.0),
        "net.body.weight": (0.2, 0.1),
        "net.body.bias": (0.02, 0.0),
        "net.head.weight": (0.4, 0.1),
        "net.head.bias": (0.4, 0.0),
    }
    assert found == {name: pytest.approx(pair) for name, pair in expected.items()}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layer_decay": 0.5}, "no groups of layers"),
        ({"layer_decay": 0.0}, "layer_decay is to be a number above 0 and of at most 1"),
        ({"no_weight_decay": ["*.biass"]}, "optimization.no_weight_decay: no parameter is called"),
    ],
)
def test_rates_and_decay_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=said):
        OptimizerConfig(optimizer=partial(torch.optim.SGD, lr=0.1), **options).configure(Module())


def test_a_prefix_ends_at_a_dot() -> None:
    module = Module()
    module.net["stems"] = nn.Linear(2, 2)
    optimization = OptimizerConfig(optimizer=partial(torch.optim.SGD, lr=1.0), freeze=["net.stem"])
    optimization.configure(module)
    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    assert frozen == {"net.stem.weight", "net.stem.bias"}


def test_layers_thaw_at_their_epoch_and_stay_so() -> None:
    module = Module()
    optimization = OptimizerConfig(
        optimizer=partial(torch.optim.SGD, lr=1.0),
        freeze=["net.stem", "net.body"],
        unfreeze={2: ["net.body"], 4: ["net.stem.bias"]},
    )
    optimization.configure(module)
    found = []
    for epoch in range(6):
        optimization.apply_freezing(module, epoch)
        found.append(sum(parameter.requires_grad for parameter in module.parameters()))
    assert found == [2, 2, 4, 4, 5, 5]


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """For each step of a run its learning rate and the norm of the gradient with which it was taken."""
    found: list[tuple[float, float]] = []

    def look(self: Any, trainer: Any, module: Any, *_: Any) -> None:
        norm = torch.nn.utils.get_total_norm([each.grad for each in module.parameters()])
        found.append((rate.pop(), float(norm)))

    def before(self: Any, trainer: Any, *_: Any) -> None:
        rate.append(trainer.optimizers[0].param_groups[0]["lr"])

    rate: list[float] = []
    monkeypatch.setattr(Progress, "on_train_batch_start", before, raising=False)
    monkeypatch.setattr(Progress, "on_train_batch_end", look)
    return found


def test_a_run_follows_its_schedule(cli: Any, tiny: list[str], observed: Any) -> None:
    options = ["data.max_epochs=10", "scheduler=cosine", "scheduler.warmup=3", "optimizer.lr=0.01"]
    assert cli("train", *tiny, *options).code == 0
    schedule = LRSchedule("cosine", warmup=3)
    assert [rate for rate, _ in observed] == pytest.approx([0.01 * schedule.rate(step, 10) for step in range(10)])


def test_a_run_follows_its_plateau(cli: Any, tiny: list[str], observed: Any) -> None:
    options = ["data.max_epochs=7", "scheduler=plateau", "scheduler.patience=1", "optimizer=sgd", "optimizer.lr=1e-12"]
    assert cli("train", *tiny, *options).code == 0
    assert [rate for rate, _ in observed] == pytest.approx([1e-12] * 3 + [5e-13] * 2 + [2.5e-13] * 2)


def test_gradients_are_clipped(cli: Any, tiny: list[str], observed: Any) -> None:
    assert cli("train", *tiny, "run_dir=a").code == 0
    assert min(norm for _, norm in observed) > 0.05
    observed.clear()
    assert cli("train", *tiny, "trainer.gradient_clip_val=0.01", "run_dir=b").code == 0
    assert [norm for _, norm in observed] == pytest.approx([0.01] * 4, rel=1e-3)


@pytest.mark.parametrize("attention", ["gat", "gatv2", "degree"])
def test_mixed_precision(cli: Any, tiny: list[str], attention: str) -> None:
    options = ["trainer.precision=bf16-mixed", "attention.dropout=0.2", "run_dir=run"]
    assert cli("train", *tiny, f"attention={attention}", *options).code == 0
    found = json.loads(Path("run/metrics.json").read_text())
    assert all(math.isfinite(found[f"{split}/loss"]) for split in ("train", "val", "test"))
    weights = checkpoint.read("run/checkpoints/best.ckpt")["state_dict"]
    assert {weight.dtype for weight in weights.values()} == {torch.float32}


def test_gradients_can_be_accumulated(cli: Any, tiny: list[str], observed: Any) -> None:
    """With one batch an epoch Lightning steps at its end, whatever was asked."""
    assert cli("train", *tiny, "trainer.accumulate_grad_batches=2").code == 0
    assert len(observed) == 4


KINDS: tuple[Literal["constant", "cosine", "inverse_sqrt"], ...] = ("constant", "cosine", "inverse_sqrt")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("warmup", "total"), [(0, 1), (5, 5), (10, 5), (1, 1)])
def test_rates_are_between_nought_and_one_whatever_the_lengths(kind: Any, warmup: int, total: int) -> None:
    rates = [LRSchedule(kind, warmup=warmup).rate(step, total) for step in range(20)]
    assert all(0 <= rate <= 1 for rate in rates)
    assert rates[0] > 0


def test_what_a_net_was_made_without_gradients_for_stays_so() -> None:
    module = Module()
    module.net["stem"].requires_grad_(False)
    made = OptimizerConfig(optimizer=torch.optim.SGD, freeze=["net.body"], unfreeze={2: ["net.body"]})
    for epoch, trained in ((0, {"head"}), (2, {"body", "head"}), (0, {"head"})):
        made.apply_freezing(module, epoch)
        assert {name.split(".")[1] for name, each in module.named_parameters() if each.requires_grad} == trained
