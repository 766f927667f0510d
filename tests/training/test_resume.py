"""A run that is stopped, and continued; and what cannot be continued."""

from __future__ import annotations

import csv
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from zoo.checkpoints import checkpoint
from zoo.training.callbacks.progress import Progress

TRAIN_PY = Path(__file__).resolve().parents[2] / "train.py"


def epochs(run_dir: Path | str) -> list[int]:
    with (Path(run_dir) / "metrics.csv").open(newline="") as file:
        return [int(row["epoch"]) for row in csv.DictReader(file) if row["val/loss"]]


def equal(one: Path | str, other: Path | str) -> bool:
    ours, theirs = (checkpoint.read(path)["state_dict"] for path in (one, other))
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def command_in(message: str) -> list[str]:
    """The arguments of the command that a message ends with."""
    said = message.splitlines()[-1].partition("Continue with: ")[2]
    assert said.startswith("python train.py ")
    return ["train", *shlex.split(said)[2:]]


@pytest.fixture
def stop_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`stop_in(epoch, signal)` sends the signal to this process in the middle of that epoch, once."""

    def patch(epoch: int, number: signal.Signals, hook: str = "on_train_batch_start") -> None:
        sent: list[int] = []

        def kill(self: Any, trainer: Any, *_: Any) -> None:
            if trainer.current_epoch == epoch and not sent:
                sent.append(epoch)
                os.kill(os.getpid(), number)

        monkeypatch.setattr(Progress, hook, kill, raising=False)

    return patch


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_is_continued(cli: Any, tiny: list[str], stop_in: Any, number: signal.Signals) -> None:
    options = [*tiny, "data.max_epochs=8", "attention.dropout=0.3"]
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stop_in(4, number)
    done = cli("train", *options, "run_dir=my run")
    assert done.code == 130
    assert f"zoo: stopped by {number.name} after step 5" in done.err
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert not Path("my run/metrics.json").exists()
    before = Path("my run/metrics.csv").read_text()
    assert epochs("my run") == [0, 1, 2, 3, 4]  # the epoch that was under way is validated
    assert torch.load("my run/checkpoints/last.ckpt", weights_only=True)["global_step"] == 5

    done = cli(*command_in(done.err))
    assert done.code == 0
    assert json.loads(Path("my run/metrics.json").read_text())["epochs"] == 8
    assert Path("my run/metrics.csv").read_text().startswith(before)
    assert epochs("my run")[-3:] == [5, 6, 7]
    assert [path.name for path in Path.cwd().iterdir()] == ["my run"]


def test_a_signal_during_validation_waits_for_its_end(cli: Any, tiny: list[str], stop_in: Any) -> None:
    """Lightning has a handler of its own for SIGTERM, which would end the run without saving it."""
    stop_in(1, signal.SIGTERM, "on_validation_start")
    done = cli("train", *tiny, "run_dir=run")
    assert done.code == 130
    assert "stopped by SIGTERM after step 2" in done.err
    assert Path("run/checkpoints/last.ckpt").exists()


def test_ctrl_c_is_given_back_after_training(cli: Any, tiny: list[str]) -> None:
    """In a notebook the next cell must be interruptible."""
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert cli("train", *tiny, "run_dir=run").code == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert handlers[0] is signal.default_int_handler


def test_what_is_continued_ends_where_it_would_have_ended(cli: Any, tiny: list[str], stop_in: Any) -> None:
    assert cli("train", *tiny, "data.max_epochs=6", "run_dir=whole").code == 0
    stop_in(3, signal.SIGINT)
    assert cli("train", *tiny, "data.max_epochs=6", "run_dir=parts").code == 130
    assert cli("train", "resume=parts/checkpoints/last.ckpt").code == 0
    assert equal("parts/checkpoints/last.ckpt", "whole/checkpoints/last.ckpt")


def test_a_finished_run_goes_on_to_more_epochs_from_anywhere(cli: Any, tiny: list[str], monkeypatch: Any) -> None:
    """Its relative run_dir is of the directory where it began."""
    begun = Path.cwd()
    assert cli("train", *tiny, "data.max_epochs=6", "run_dir=whole").code == 0
    assert cli("train", *tiny, "data.max_epochs=3", "run_dir=parts").code == 0
    (begun / "elsewhere").mkdir()
    monkeypatch.chdir(begun / "elsewhere")
    assert cli("train", f"resume={begun}/parts/checkpoints/last.ckpt", "data.max_epochs=6").code == 0
    assert not any(Path.cwd().iterdir())
    assert equal(begun / "parts/checkpoints/last.ckpt", begun / "whole/checkpoints/last.ckpt")
    assert equal(begun / "parts/checkpoints/best.ckpt", begun / "whole/checkpoints/best.ckpt")
    assert epochs(begun / "parts") == epochs(begun / "whole") == list(range(6))
    ours, theirs = (json.loads((begun / name / "metrics.json").read_text()) for name in ("parts", "whole"))
    assert {key: ours[key] for key in ours if "/" in key} == {key: theirs[key] for key in theirs if "/" in key}
    assert ours["best_epoch"] == theirs["best_epoch"]


def test_fine_tuning_is_continued_too(cli: Any, tiny: list[str], tiny_run: Path, stop_in: Any) -> None:
    stop_in(2, signal.SIGINT)
    done = cli("train", *tiny, f"init={tiny_run}/checkpoints/best.ckpt", "run_dir=fine")
    assert done.code == 130
    done = cli(*command_in(done.err))
    assert done.code == 0
    assert json.loads(Path("fine/metrics.json").read_text())["epochs"] == 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["resume={run}/checkpoints/best.ckpt"], "holds weights alone and cannot be continued; resume from last.ckpt"),
        (["resume={run}/checkpoints/no.ckpt"], "there is no checkpoint"),
        (["resume={run}"], "is a folder"),
        (["resume={run}/config.yaml"], "is not a checkpoint"),
        (["resume={run}/checkpoints/last.ckpt", "init={run}/checkpoints/best.ckpt"], "give either init="),
        (["resume={run}/checkpoints/last.ckpt", "model=gatv2"], "model.net.attend.score._target_"),
        (["resume={run}/checkpoints/last.ckpt", "model.net.heads=8"], "model.net.heads (2 there, 8 here)"),
        (["resume={run}/checkpoints/last.ckpt", "attention=uniform"], "is of another model"),
        (["resume={run}/checkpoints/last.ckpt", "data.nodes=no"], "data.nodes='no' does not fit"),
        (["resume={run}/checkpoints/last.ckpt", "data.node=5"], "Did you mean 'data.nodes'?"),
    ],
)
def test_what_cannot_be_continued_is_left_alone(cli: Any, tiny_run: Path, given: list[str], said: str) -> None:
    before = {path: path.read_bytes() for path in tiny_run.rglob("*") if path.is_file()}
    done = cli("train", *(each.format(run=tiny_run) for each in given))
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert {path: path.read_bytes() for path in tiny_run.rglob("*") if path.is_file()} == before
    assert not any(Path.cwd().iterdir())


def test_ctrl_c_at_a_terminal(tmp_path: Path, tiny: list[str]) -> None:
    """The one test here that starts the program as a user does."""
    command = [sys.executable, str(TRAIN_PY), *tiny, "data.max_epochs=100000", "run_dir=run"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        deadline = time.monotonic() + 60
        metrics = tmp_path / "run" / "metrics.csv"
        while not (metrics.exists() and metrics.read_text().count("\n") > 1) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert f"Continue with: python train.py resume={tmp_path}/run/checkpoints/last.ckpt" in said
    assert checkpoint.read(tmp_path / "run" / "checkpoints" / "last.ckpt")["global_step"] > 0


@pytest.mark.parametrize(
    ("given", "is_continued"), [([], True), (["penalty.entropy=0.1"], False), (["data.noise=0.2"], False)]
)
def test_auto_continues_a_run_of_an_earlier_release(
    cli: Any, tiny: list[str], monkeypatch: pytest.MonkeyPatch, given: list[str], is_continued: bool
) -> None:
    """Its config.yaml names modules that have moved, and groups for which the model has no place."""
    monkeypatch.setenv("ZOO_CACHE", "cache")
    begun = Path("runs/gat-planted_graph/unfinished_gat")
    shutil.copytree(Path(__file__).parent / "files" / begun.name, begun)
    done = cli("train", *tiny, *given, "resume=auto")
    assert done.code == 0, done.err
    assert (f"resume=auto: continuing {begun.absolute()}" in done.err) == is_continued
    assert (begun / "metrics.json").exists() == is_continued
    if is_continued:
        assert epochs(begun) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "torch",
            lambda state: state[:-1],
            "generators are not states of generators (Expected a CPUGeneratorImplState",
        ),
        ("torch", torch.zeros_like, "generators are not states of generators (Invalid mt19937 state)"),
        (
            "python",
            lambda state: (state[0], state[1] * 2, None),
            "generators are not states of generators (state vector is the wrong size)",
        ),
        (
            "python",
            lambda state: (*state[:2], "x"),
            "generators are not states of generators ('x' is not a number that",
        ),
        (
            "numpy",
            lambda state: {**state, "keys": state["keys"][:-1]},
            "generators are not states of generators (NumPy's state is not 624 words",
        ),
        (
            "numpy",
            lambda state: {**state, "keys": -state["keys"]},
            "generators are not states of generators (NumPy's state is not 624 words",
        ),
        (
            "numpy",
            lambda state: {**state, "place": 10**6},
            "generators are not states of generators (NumPy's state is not 624 words",
        ),
    ],
)
def test_generators_that_are_none(cli: Any, tiny_run: Path, name: str, change: Any, said: str) -> None:
    """Those of a stranger: NumPy would read beyond the end of its state."""
    shutil.copytree(tiny_run, "run")
    last = Path("run/checkpoints/last.ckpt")
    content = torch.load(last, weights_only=True)
    (states,) = content["exactly"]["generators"]
    states[name] = change(states[name])
    torch.save(content, last)
    done = cli("train", f"resume={last}", "data.max_epochs=5")
    assert done.code == 2
    assert f"cannot be continued: content.exactly.{said}" in done.err
    assert done.err.count("\n") == 1


def test_fewer_epochs_than_it_has_had(cli: Any, tiny_run: Path) -> None:
    last = tiny_run / "checkpoints" / "last.ckpt"
    done = cli("train", f"resume={last}", "data.max_epochs=3")
    assert done.code == 2
    assert done.err == (
        f"zoo: {last} has trained for 4 epochs already, and data.max_epochs is 3: give at least data.max_epochs=4 to "
        f"continue it, or look at its weights: zoo evaluate {last.with_name('best.ckpt')}\n"
    )


def test_auto_says_one_thing_of_a_run_that_cannot_go_on(cli: Any, tiny: list[str], tiny_run: Path) -> None:
    """That there is nothing to continue is not said where no new run begins."""
    shutil.copytree(tiny_run, "run")
    Path("run/checkpoints/last.ckpt").unlink()
    done = cli("train", *tiny, "resume=auto", "run_dir=run")
    assert done.code == 2
    assert "nothing to continue" not in done.err
    assert "holds a run already; give another run_dir; as there is no last.ckpt" in done.err
    assert done.err.count("\n") == 1
