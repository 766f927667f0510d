"""What comes in the way of a run: impatience, signals at the end, killed workers, a directory that is taken away."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from zoo import processes
from zoo.checkpoints import checkpoint
from zoo.config import compose
from zoo.errors import CheckpointError, WorkerError
from zoo.tasks.base import Task
from zoo.training import run
from zoo.training.callbacks.progress import Progress
from zoo.training.loggers import raise_writer_errors
from zoo.training.run_config import RunConfig

LONG = ["data.max_epochs=8", "callbacks.checkpoint.patience=null"]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`at(step, what)` does something once before the batch after that step; `hook=` elsewhere."""

    def patch(step: int, what: Callable[[], object], hook: str = "on_train_batch_start") -> None:
        done: list[int] = []

        def once(self: Any, trainer: Any, *_: Any) -> None:
            if trainer.global_step >= step and not done:
                done.append(step)
                what()

        monkeypatch.setattr(Progress, hook, once, raising=False)

    return patch


def ask(number: signal.Signals = signal.SIGINT, times: int = 1) -> None:
    for _ in range(times):
        os.kill(os.getpid(), number)
        time.sleep(0.001)  # two of a kind that wait for a process are one


def last_of(run_dir: str | Path) -> dict[str, Any]:
    return checkpoint.read(Path(run_dir) / "checkpoints" / "last.ckpt")


def continued(said: str) -> list[str]:
    (found,) = re.findall(r"Continue with: python train\.py ([^#\n]+)", said)
    return ["train", *shlex.split(found)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_impatient_hand_loses_nothing(cli: Any, tiny: list[str], at: Any, number: signal.Signals) -> None:
    """Twice or more within two seconds is one request."""
    at(4, lambda: ask(number, 5))
    done = cli("train", *tiny, *LONG, "run_dir=run")
    assert done.code == 130
    assert f"stopped by {number.name} after step " in done.err
    assert last_of("run")["global_step"] in (4, 5)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_impatience_while_it_saves(cli: Any, tiny: list[str], at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes."""
    save = torch.save

    def slow(*arguments: Any) -> None:
        ask(times=2)
        save(*arguments)

    monkeypatch.setattr(processes, "PATIENCE", 0.0)
    at(4, lambda: (ask(), monkeypatch.setattr(torch, "save", slow)))
    done = cli("train", *tiny, *LONG, "run_dir=run")
    assert (done.code, "after step " in done.err) == (130, True)
    assert last_of("run")["global_step"] in (4, 5)


def test_insisting_ends_a_step_that_never_does(
    cli: Any, tiny: list[str], at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is saved that is half done; what was saved before can be continued."""
    monkeypatch.setattr(processes, "PATIENCE", 0.0)
    at(4, lambda: ask(times=2))
    done = cli("train", *tiny, *LONG, "run_dir=run", "callbacks.checkpoint.save_every_seconds=0")
    assert done.code == 130
    assert "zoo: stopped at once, without saving\nContinue with: " in done.err
    assert last_of("run")["global_step"] == 3
    assert cli(*continued(done.err)).code == 0
    at(1, lambda: ask(times=2))
    done = cli("train", *tiny, *LONG, "run_dir=nothing")
    assert (done.code, done.err.splitlines()[-1]) == (130, "zoo: stopped at once, without saving")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_the_best_weights_are_evaluated(
    cli: Any, tiny: list[str], at: Any, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is kept; what continues evaluates alone, and leaves what the whole run leaves."""
    assert cli("train", *tiny, "run_dir=whole").code == 0
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    at(0, lambda: ask(number, 2), "on_test_batch_start")
    done = cli("train", *tiny, "paths.runs=runs")
    assert done.code == 130
    assert f"stopped by {number.name}. Training is over and its weights are kept" in done.err
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    (run_dir,) = Path("runs").glob("*/*")
    assert not (run_dir / "metrics.json").exists()
    (command,) = re.findall(r"or look at the weights: zoo (.*)", done.err)
    assert cli(*shlex.split(command)).code == 0
    shutil.copytree(run_dir, "by_auto")

    def none(*_: Any) -> None:
        raise AssertionError("it trains")

    monkeypatch.setattr(Task, "training_step", none, raising=False)
    assert cli(*continued(done.err)).code == 0
    shutil.rmtree(run_dir)
    shutil.move("by_auto", run_dir)
    assert cli("train", *tiny, "paths.runs=runs", "resume=auto").code == 0
    ours, theirs = (json.loads((Path(each) / "metrics.json").read_text()) for each in (run_dir, "whole"))
    for key in ("seconds", "data_wait", "samples_per_second", "command"):
        del ours[key], theirs[key]
    assert ours == theirs
    assert (run_dir / "metrics.csv").read_bytes() == Path("whole/metrics.csv").read_bytes()


def test_a_stop_while_the_end_is_saved(cli: Any, tiny: list[str], at: Any) -> None:
    """It is noticed before the evaluation begins."""
    at(0, lambda: ask(times=2), "on_train_end")
    done = cli("train", *tiny, "run_dir=run")
    assert (done.code, "Training is over and its weights are kept" in done.err) == (130, True)
    assert last_of("run")["global_step"] == 4
    assert cli(*continued(done.err)).code == 0


def test_ctrl_c_while_a_checkpoint_is_evaluated(cli: Any, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "on_test_epoch_start", lambda _: ask(), raising=False)
    done = cli("evaluate", tiny_run / "checkpoints" / "best.ckpt")
    assert (done.code, done.err) == (130, "zoo: stopped\n")


def dense_run(run_dir: str, *, workers: int, every: int) -> dict[str, Any]:
    made = compose.compose(
        ["model=gat", "logger=csv", "trainer=cpu", f"callbacks.checkpoint.save_every_seconds={every}"]
    )
    made["model"] = {"_target_": "zoo.tasks.dense_cases.DenseTask", "optimization": made["optimization"]}
    made["data"] = {"_target_": "zoo.tasks.dense_cases.sequences", "max_epochs": 4, "batch_size": 8}
    made["data"]["num_workers"] = workers
    return run.train(RunConfig({**made, "run_dir": run_dir}))


# slow tier: the same kill, of a run that has saved nothing
@pytest.mark.parametrize("every", [0, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_worker_that_is_killed(
    dense: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Any, every: int
) -> None:
    """As by a machine without memory: one message, what was probably the reason, and how to go on."""
    monkeypatch.chdir(tmp_path)
    before: list[bytes] = []

    def kill() -> None:
        before.extend(path.read_bytes() for path in Path("run/checkpoints").glob("last.ckpt"))
        for each in multiprocessing.active_children():
            assert each.pid is not None
            os.kill(each.pid, signal.SIGKILL)
            each.join()

    at(5, kill, "on_train_batch_end")
    with pytest.raises(WorkerError) as caught:
        dense_run("run", workers=1, every=every)
    said = str(caught.value)
    assert re.match(r"a process that makes batches was ended from outside \((Killed|unknown why)\): most often", said)
    assert "data.num_workers" in said
    assert len(before) == (every == 0)
    if before:  # batches that it had sent whole are trained on
        assert 5 <= last_of("run")["global_step"] <= 5 + 2
        assert continued(said) == ["train", f"resume={tmp_path}/run/checkpoints/last.ckpt"]
    else:
        assert "Continue with" not in said


@pytest.mark.parametrize(
    ("step", "hook"), [(2, "on_train_batch_start"), (0, "on_train_end"), (0, "on_test_batch_start")]
)
def test_the_directory_is_taken_away(cli: Any, tiny: list[str], at: Any, tmp_path: Path, step: int, hook: str) -> None:
    at(step, lambda: shutil.rmtree("run"), hook)
    done = cli("train", *tiny, "callbacks.checkpoint.save_every_seconds=0", "run_dir=run")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(f"zoo: {tmp_path}/run is gone: it was removed or renamed while the run")
    assert list(Path().rglob("*")) == []


def test_the_directory_is_taken_from_tensorboard(cli: Any, tiny: list[str], at: Any, tmp_path: Path) -> None:
    """Its thread writes on its own, and prints no traceback."""
    at(2, lambda: shutil.rmtree("run"), "on_train_batch_start")
    options = ["callbacks.checkpoint.save_every_seconds=1000", "trainer.log_every_n_steps=1", "data.max_epochs=200"]
    done = cli("train", *tiny[:-1], "logger=default", *options, "callbacks.checkpoint.patience=null", "run_dir=run")
    assert done.code == 2
    assert "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith(f"zoo: {tmp_path}/run is gone: it was removed or renamed while the run")


def test_errors_of_other_threads_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise OSError("in a thread")

    before = threading.excepthook
    threading.excepthook = threading.__excepthook__
    try:
        with raise_writer_errors():
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()
    finally:
        threading.excepthook = before
    assert "OSError: in a thread" in capsys.readouterr().err


def test_a_directory_that_has_its_name_since_is_given_no_checkpoint(
    cli: Any, tiny: list[str], at: Any, tmp_path: Path
) -> None:
    at(2, lambda: (shutil.move("run", "renamed"), Path("run").mkdir()))
    done = cli("train", *tiny, "callbacks.checkpoint.save_every_seconds=0", "run_dir=run")
    assert done.code == 2
    assert f"{tmp_path}/run is gone: it was removed or renamed" in done.err
    assert not Path("run/checkpoints").exists()
    assert cli("train", "resume=renamed/checkpoints/last.ckpt").code == 0


def test_a_directory_that_is_there_is_not_gone(cli: Any, tiny: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise CheckpointError("something else")

    monkeypatch.setattr(run, "evaluate_and_report", fails)
    assert cli("train", *tiny, "run_dir=run").err.endswith("zoo: something else\n")
