"""An interrupted run that is continued equals one that was not: the same weights bit for bit, the same metrics.csv."""

from __future__ import annotations

import contextlib
import copy
import errno
import functools
import gc
import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from tiers import all_slow_but

from zoo.checkpoints import checkpoint
from zoo.config import compose
from zoo.errors import CheckpointError, InterruptedRunError
from zoo.training import CheckpointAndStop, run
from zoo.training import run_dir as run_directory
from zoo.training.callbacks.progress import Progress
from zoo.training.loggers import MetricsFile
from zoo.training.run_config import RunConfig

EPOCHS, BATCHES = 3, 4
CASES: dict[str, dict[str, Any]] = {
    "dropout": {"model.dropout": 0.3},
    "accumulation": {"trainer.accumulate_grad_batches": 3, "model.dropout": 0.3},
    "cosine": {"scheduler": "cosine", "scheduler.warmup": 3},
    "plateau": {"scheduler": "plateau", "scheduler.patience": 0},
    "ema": {"callbacks": "ema", "callbacks.average.decay": 0.9},
    "workers": {"data.augment": True, "data.num_workers": 1},
    "buckets": {"data.buckets": True, "data.augment": True},
    "patience": {"callbacks.checkpoint.patience": 1, "optimizer.lr": 0.0},
    "all": {
        "model.dropout": 0.3,
        "trainer.accumulate_grad_batches": 3,
        "scheduler": "cosine",
        "callbacks": "ema",
        "data.augment": True,
        "data.buckets": True,
        "optimizer": "adamw",
    },
}

Options = dict[str, Any]


@functools.cache
def composed(*overrides: str) -> dict[str, Any]:
    return compose.compose(overrides)


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dense: Any) -> Callable[..., dict[str, Any]]:
    """`train(run_dir, **options)` is a whole run of the dense model, as the command line makes it."""
    monkeypatch.chdir(tmp_path)

    def start(run_dir: str, given: Options, every: float = 1e9, resume: str | None = None) -> dict[str, Any]:
        groups = ("scheduler", "optimizer", "callbacks")
        own = ("model.", "data.")
        overrides = ["model=gat", "logger=csv", "trainer=cpu", "trainer.log_every_n_steps=2", "seed=3"]
        overrides += [f"{key}={value}" for key, value in given.items() if key in groups]
        overrides += [f"{key}={value}" for key, value in given.items() if key not in groups and not key.startswith(own)]
        made = copy.deepcopy(composed(*overrides))
        made["callbacks"]["checkpoint"]["save_every_seconds"] = every
        chosen = {key: value for key, value in given.items() if key.startswith(own)}
        made["model"] = {"_target_": "zoo.tasks.dense_cases.DenseTask", "optimization": made["optimization"]}
        made["data"] = {"_target_": "zoo.tasks.dense_cases.sequences", "max_epochs": EPOCHS, "batch_size": 8}
        for key, value in chosen.items():
            group, name = key.split(".")
            made[group][name] = value
        made |= {"run_dir": run_dir, "resume": resume}
        return run.train(RunConfig(made))

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
        for key in ("seconds", "data_wait", "samples_per_second", "command"):
            word.pop(key)
    assert words[0] == words[1]


# slow tier: what `all` has too, and workers, whose copies take processes of their own
@pytest.mark.parametrize("case", all_slow_but(("all", "plateau", "patience"), CASES))
def test_interrupted_before_any_batch(case: str, train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the run's directory, taken after each save, is what `kill -9` leaves; all are run to their end."""
    given = CASES[case]
    train("whole", given)
    save, copies = CheckpointAndStop.save, []

    def copying(self: CheckpointAndStop, trainer: pl.Trainer) -> None:
        save(self, trainer)
        copies.append(f"copy{len(copies)}")
        shutil.copytree(self.best_path.parent.parent, copies[-1])

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointAndStop, "save", copying)
        train("parts", given, every=0)
    compared("parts", "whole")
    steps = [torch.load(f"{each}/checkpoints/last.ckpt", weights_only=True)["global_step"] for each in copies]
    assert steps == sorted(steps)
    if case != "patience":
        per_epoch = -(-BATCHES // given.get("trainer.accumulate_grad_batches", 1))
        assert steps == list(range(per_epoch * EPOCHS + 1))
    for number, each in enumerate(copies):
        if number + 1 < len(copies):  # rows of steps that are lost, and half a row
            lost = Path(copies[number + 1]) / "metrics.csv"
            if lost.exists():
                Path(each, "metrics.csv").write_text(lost.read_text() + "99,1")
        train(each, given, resume="auto")
        compared(each, "whole")


@pytest.mark.parametrize("stops", [None, 6])
def test_no_worker_outlives_its_run(stops: int | None, train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to the garbage collector, each takes 5 s to end."""
    monkeypatch.setattr(Progress, "on_train_batch_start", stopped_at(stops), raising=False)
    gc.disable()
    try:
        with contextlib.suppress(InterruptedRunError):
            train("run", CASES["workers"])
        assert multiprocessing.active_children() == []
    finally:
        gc.enable()


class KilledError(BaseException):
    """What no handler of errors expects."""


@pytest.mark.parametrize("name", ["best.ckpt", "last.ckpt"])
@pytest.mark.parametrize("which", [1, 2, 3])
def test_killed_while_a_file_is_written(name: str, which: int, train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the two files that belong together one is then of the future."""
    given = {"callbacks.checkpoint.monitors": "{val/loss: min}", "model.dropout": 0.2}
    train("whole", given)
    write, left = checkpoint.write, [which]

    def killed(path: Path, content: Any) -> None:
        left[0] -= path.name == name
        if not left[0]:
            path.parent.mkdir(exist_ok=True)
            Path(path.parent / f".{name}.half").write_bytes(b"PK half a file")
            raise KilledError
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", killed)
        with pytest.raises(KilledError):
            train("parts", given, every=0)
    train("parts", given, resume="auto")
    compared("parts", "whole")
    assert {path.name for path in Path("parts/checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


def test_a_best_of_steps_that_were_lost(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may never come again if the run goes on differently: that of last.ckpt is put back, or asked for."""
    given = {"callbacks.checkpoint.monitors": "{val/loss: min}"}
    save, copies = CheckpointAndStop.save, {}

    def copying(self: CheckpointAndStop, trainer: pl.Trainer) -> None:
        save(self, trainer)
        copies[self._best_step] = f"copy{self._best_step}"
        shutil.copytree(self.best_path.parent.parent, copies[self._best_step], dirs_exist_ok=True)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointAndStop, "save", copying)
        train("parts", given, every=0)
    none, first, second, *_ = (Path(each) / "checkpoints" for each in copies.values())
    own = (first / "best.ckpt").read_bytes()
    shutil.copy(second / "best.ckpt", first)
    with pytest.raises(CheckpointError, match=r"is not the one that belongs to last\.ckpt beside it"):
        train(str(first.parent), given, resume="auto")
    (first / "best.previous.ckpt").write_bytes(own)
    shutil.copy(second / "best.ckpt", none)
    for each in (first, none):
        train(str(each.parent), given, resume="auto")
        compared(each.parent, "parts")


def test_a_full_disk(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = CASES["dropout"]
    train("whole", given)
    write = os.fsync
    count = [0]

    def full(handle: int) -> None:
        count[0] += "ckpt" in os.readlink(f"/proc/self/fd/{handle}")
        if count[0] == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match=r"cannot be written: No space left on device\. Those that"):
            train("parts", given, every=0)
    assert not list(Path("parts/checkpoints").glob(".*"))
    assert checkpoint.read("parts/checkpoints/last.ckpt")["global_step"] > 0
    train("parts", given, resume="auto")
    compared("parts", "whole")


def test_metrics_csv_cannot_be_written(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: MetricsFile) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    monkeypatch.setattr(MetricsFile, "save", full)
    with pytest.raises(CheckpointError, match=r"metrics\.csv cannot be written: No space left on device"):
        train("parts", {})


def test_auto_finds_the_newest_unfinished_run_of_the_same_options(
    cli: Any, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    several = [
        *tiny,
        "data.batch_size=50",
        "callbacks.checkpoint.save_every_seconds=0",
        "paths.runs=runs",
        "resume=auto",
    ]
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "on_train_batch_start", stopped_at(5), raising=False)
        done = cli("train", *several)
    assert "no unfinished run of this configuration under" in done.err
    assert done.code == 130
    (folder,) = Path("runs").glob("*/*")
    other = cli("train", *several, "seed=1")  # another configuration
    assert "no unfinished run" in other.err
    done = cli("train", *several)
    assert f"resume=auto: continuing {folder.absolute()}" in done.err
    assert done.code == 0
    assert len(list(Path("runs").glob("*/*"))) == 2
    assert cli("train", *several[:-1], "run_dir=whole").code == 0
    assert (folder / "metrics.csv").read_bytes() == Path("whole/metrics.csv").read_bytes()
    assert "no unfinished run" in cli("train", *several).err  # it is finished now


def test_auto_in_a_directory(cli: Any, tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "say which model" in cli("train", "resume=auto", "run_dir=run").err
    done = cli("train", *tiny, "resume=auto", "run_dir=run")
    assert "nothing to continue in run: a new run" in done.err
    assert done.code == 0
    assert cli("train", "resume=auto", "run_dir=run").code == 0


def test_it_goes_on_in_another_directory(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which then holds the whole run."""
    train("whole", CASES["dropout"])
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "on_train_batch_start", stopped_at(6), raising=False)
        with pytest.raises(InterruptedRunError, match="after step 7"):
            train("begun", CASES["dropout"])
    train("elsewhere", CASES["dropout"], resume="begun/checkpoints/last.ckpt")
    compared("elsewhere", "whole")


def test_a_run_that_is_under_way_is_left_alone(cli: Any, tiny: list[str], tiny_run: Path) -> None:
    shutil.copytree(tiny_run, "run")
    with run_directory.lock(Path("run")):
        done = cli("train", "resume=auto", "run_dir=run")
    assert done.code == 2
    assert "another process is at work on this run" in done.err


def stopped_at(step: int | None) -> Callable[..., None]:
    def stop(self: Any, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return stop
