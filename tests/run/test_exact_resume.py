"""An interrupted run that is continued equals one that was not: the same weights bit for bit, the same metrics.csv."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from zoo import checkpoint, config, run
from zoo.callbacks import Keeper

EPOCHS, BATCHES = 3, 5
CASES: dict[str, dict[str, Any]] = {
    "dropout": {"model.dropout": 0.3},
    "accumulation": {"trainer.accumulate_grad_batches": 2, "model.dropout": 0.3},
    "cosine": {"scheduler": "cosine", "scheduler.warmup": 3},
    "plateau": {"scheduler": "plateau", "scheduler.patience": 0},
    "ema": {"callbacks": "ema", "callbacks.average.decay": 0.9},
    "workers": {"data.augment": True, "data.num_workers": 1},
    "buckets": {"data.buckets": True, "data.augment": True},
    "patience": {"callbacks.keeper.patience": 1, "optimizer.lr": 0.0},
    "all": {
        "model.dropout": 0.3,
        "trainer.accumulate_grad_batches": 2,
        "scheduler": "cosine",
        "callbacks": "ema",
        "data.augment": True,
        "data.buckets": True,
        "optimizer": "adamw",
    },
}

Options = dict[str, Any]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """`train(run_dir, **options)` is a whole run of the dense model, as the command line makes it."""
    monkeypatch.chdir(tmp_path)
    name = "zoo.tasks.dense_cases"  # as if it were a domain
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "dense_cases.py")
    assert spec is not None
    assert spec.loader is not None
    monkeypatch.setitem(sys.modules, name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(sys.modules[name])

    def start(run_dir: str, given: Options, every: float = 1e9, resume: str | None = None) -> dict[str, Any]:
        groups = ("scheduler", "optimizer", "callbacks")
        own = ("model.", "data.")
        overrides = ["model=gat", "logger=csv", "trainer=cpu", "trainer.log_every_n_steps=2", "seed=3"]
        overrides += [f"{key}={value}" for key, value in given.items() if key in groups]
        overrides += [f"{key}={value}" for key, value in given.items() if key not in groups and not key.startswith(own)]
        made = config.compose([*overrides, f"callbacks.keeper.every_seconds={every}"])
        chosen = {key: value for key, value in given.items() if key.startswith(own)}
        made["model"] = {"_target_": "zoo.tasks.dense_cases.DenseTask", "optimisation": made["optimisation"]}
        made["data"] = {"_target_": "zoo.tasks.dense_cases.DenseData", "max_epochs": EPOCHS}
        for key, value in chosen.items():
            group, name = key.split(".")
            made[group][name] = value
        made |= {"run_dir": run_dir, "resume": resume}
        return run.train(made)

    return start


def compared(one: str | Path, other: str | Path) -> None:
    for name in ("last", "best"):
        ours, theirs = (checkpoint.read(Path(each) / "checkpoints" / f"{name}.ckpt") for each in (one, other))
        assert ours["global_step"] == theirs["global_step"]
        assert ours["state_dict"].keys() == theirs["state_dict"].keys()
        assert all(torch.equal(value, theirs["state_dict"][key]) for key, value in ours["state_dict"].items())
        if name == "last":
            assert str(ours["optimizer_states"]) == str(theirs["optimizer_states"])
            assert ours["lr_schedulers"] == theirs["lr_schedulers"]
            assert torch.equal(ours["exactly"]["generators"][0]["torch"], theirs["exactly"]["generators"][0]["torch"])
            assert ours["loops"]["fit_loop"]["epoch_progress"] == theirs["loops"]["fit_loop"]["epoch_progress"]
    assert (Path(one) / "metrics.csv").read_bytes() == (Path(other) / "metrics.csv").read_bytes()
    words = [json.loads((Path(each) / "metrics.json").read_text()) for each in (one, other)]
    for word in words:
        for key in ("seconds", "samples_per_second", "command"):
            word.pop(key)
    assert words[0] == words[1]


@pytest.mark.parametrize("case", CASES)
def test_interrupted_before_any_batch(case: str, train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the run's directory, taken after each save, is what `kill -9` leaves; all are run to their end."""
    given = CASES[case]
    train("whole", given)
    save, copies = Keeper.save, []

    def copying(self: Keeper, trainer: pl.Trainer) -> None:
        save(self, trainer)
        copies.append(f"copy{len(copies)}")
        shutil.copytree(self.best_path.parent.parent, copies[-1])

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "save", copying)
        train("parts", given, every=0)
    compared("parts", "whole")
    steps = [torch.load(f"{each}/checkpoints/last.ckpt", weights_only=True)["global_step"] for each in copies]
    assert steps == sorted(steps)
    if case != "patience":
        per_epoch = -(-BATCHES // given.get("trainer.accumulate_grad_batches", 1))
        assert steps == list(range(per_epoch * EPOCHS + 1))
    for number, each in enumerate(copies):
        if number + 1 < len(copies):  # rows of steps that are lost, and half a row
            lost = (Path(copies[number + 1]) / "metrics.csv")
            if lost.exists():
                Path(each, "metrics.csv").write_text(lost.read_text() + "99,1")
        train(each, given, resume="auto")
        compared(each, "whole")
