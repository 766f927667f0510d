"""A task whose primary metric is an error rate: what is kept, and what slows down or searches, wants less of it."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch

from zoo.checkpoints import checkpoint
from zoo.config import compose
from zoo.config.instantiate import resolve_target
from zoo.errors import ConfigError
from zoo.optim import LRSchedule, OptimizerConfig
from zoo.sweeps import search
from zoo.tasks.base import Task
from zoo.training.run import train
from zoo.training.run_config import RunConfig


@pytest.fixture
def task(dense: ModuleType) -> Task:
    made: Task = dense.ErrorTask(optimization=OptimizerConfig(optimizer=partial(torch.optim.SGD, lr=0.8)), classes=3)
    return made


def test_the_lowest_error_is_kept(dense: ModuleType, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    errors: list[float] = []

    def validate(self: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 0:
            errors.append([0.5, 0.2, 0.4, 0.9][len(errors)])
        self.log("val/error", errors[-1], batch_size=len(batch[1]))

    monkeypatch.setattr(dense.ErrorTask, "validation_step", validate)
    made = compose.compose(["model=gat", "logger=csv", "trainer=cpu", "run_dir=run"])
    made["model"] = {"_target_": "zoo.tasks.dense_cases.ErrorTask", "optimization": made["optimization"]}
    made["data"] = {"_target_": "zoo.tasks.dense_cases.sequences", "max_epochs": 4, "batch_size": 8}
    assert train(RunConfig(made))["best_epoch"] == 1
    assert checkpoint.read("run/checkpoints/best.ckpt")["epoch"] == 1


@pytest.mark.parametrize(
    ("options", "better"),
    [
        ({}, -1),
        ({"monitor": "val/error"}, -1),
        ({"monitor": "val/loss"}, -1),
        ({"monitor": "val/recall", "mode": "max"}, 1),
        ({"mode": "max"}, 1),
    ],
)
def test_plateau_follows_what_is_better(task: Task, options: dict[str, Any], better: int) -> None:
    optimizer = torch.optim.SGD(task.parameters(), lr=0.8)
    made = LRSchedule("plateau", gamma=0.25, patience=1, **options).configure(optimizer, task)
    assert made["monitor"] == options.get("monitor", "val/error")
    found = []
    for gain in [1, 2, 3, 3, 3, 4]:
        made["scheduler"].step(10 + better * gain)
        found.append(optimizer.param_groups[0]["lr"])
    assert found == pytest.approx([0.8] * 4 + [0.2] * 2)


def test_plateau_asks_where_nothing_is_known_of_the_monitor(task: Task) -> None:
    optimizer = torch.optim.SGD(task.parameters(), lr=0.8)
    with pytest.raises(ConfigError, match=r"^scheduler\.monitor=val/recall: .* scheduler\.mode=max or min"):
        LRSchedule("plateau", monitor="val/recall").configure(optimizer, task)


@pytest.mark.parametrize(
    ("given", "judged"),
    [
        ({}, {"metric": "val/error", "direction": "minimize"}),
        ({"metric": "val/loss"}, {"metric": "val/loss", "direction": "minimize"}),
        ({"metric": "val/recall", "direction": "maximize"}, {"metric": "val/recall", "direction": "maximize"}),
    ],
)
def test_a_search_goes_by_the_primary_metric(dense: ModuleType, given: dict[str, str], judged: dict[str, str]) -> None:
    settings = search.parse_settings({f"hydra.sweeper.{name}": value for name, value in given.items()})
    assert search.choose_objective(settings, {"model": {"_target_": "zoo.tasks.dense_cases.ErrorTask"}}) == judged


def test_a_search_asks_where_nothing_is_known_of_the_metric() -> None:
    settings = search.parse_settings({"hydra.sweeper.metric": "val/recall"})
    with pytest.raises(ConfigError, match=r"^hydra\.sweeper\.metric=val/recall: .* hydra\.sweeper\.direction="):
        search.choose_objective(settings, {"model": {"_target_": "zoo.tasks.graph.NodeClassifier"}})


@pytest.mark.parametrize("model", compose.describe_choices("model"))
def test_every_model_says_by_what_it_is_judged(model: str) -> None:
    task = resolve_target(compose.compose([f"model={model}"])["model"]["_target_"], "model", is_root=True)
    assert task.primary_mode in ("max", "min")
    assert task.mode_of(task.primary) == task.primary_mode
    assert not (task.primary.endswith("loss") and task.primary_mode == "max")


@pytest.mark.parametrize("model", compose.describe_choices("model"))
def test_a_closing_table_is_short_and_begins_with_what_counts(model: str) -> None:
    task = resolve_target(compose.compose([f"model={model}"])["model"]["_target_"], "model", is_root=True)
    assert task.headline[0] == task.primary.removeprefix("val/")
    assert 1 <= len(task.headline) <= 5
