"""What a user sees of a run: a bar of one width on a terminal, lines elsewhere, and no line twice."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from zoo import processes
from zoo.training.callbacks import progress as module
from zoo.training.callbacks.progress import Progress

TRAIN_PY = Path(__file__).resolve().parents[2] / "train.py"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Time that goes on by itself when asked to: `clock.now += 1`."""
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: made.now)
    return made


def trainer(epochs: int = 500, batches: int = 4, patience: int | None = 50) -> Any:
    measured = {"train/loss": 0.5, "val/loss": 0.25, "val/accuracy": 0.75, "val/a_metric_with_a_long_name": 0.1}
    return SimpleNamespace(
        max_epochs=epochs,
        num_training_batches=batches,
        current_epoch=0,
        global_step=0,
        callback_metrics={name: torch.tensor(value) for name, value in measured.items()},
        callbacks=[SimpleNamespace(patience=patience)],
    )


def played(progress: Progress, run: Any, clock: Any, batches: int, seconds: float) -> None:
    """So many batches, each of so many seconds; then the run stops."""
    progress.on_train_start(run, None)
    for number in range(batches):
        clock.now += seconds
        run.global_step += 1
        progress.on_train_batch_end(run, None, None, None, number % run.num_training_batches)
        if (number + 1) % run.num_training_batches == 0:
            progress.on_train_epoch_end(run, None)
            run.current_epoch += 1


def shown(text: str) -> list[list[str]]:
    """The lines of each drawing, of which the first one says the epoch."""
    frames: list[list[str]] = []
    for line in CONTROL.sub(lambda found: "" if found[0].endswith("m") else "\n", text).replace("\r", "").split("\n"):
        if line.startswith("epoch"):
            frames.append([])
        if line.strip() and frames:
            frames[-1].append(line)
    return frames


@pytest.mark.parametrize("width", [30, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(clock: Any, width: int) -> None:
    file = io.StringIO()
    progress = Progress(Console(file=file, force_terminal=True, width=width, legacy_windows=False))
    run = trainer(epochs=1000)
    played(progress, run, clock, batches=40, seconds=0.5)
    progress.on_train_end(run, None)
    frames = shown(file.getvalue())
    assert len(frames) > 10
    assert all(len(line) <= width for frame in frames for line in frame)
    assert all(frame[0].startswith("epoch ") for frame in frames)


@pytest.mark.parametrize(("patience", "said"), [(50, "at most 0:01:30 left"), (None, " 0:01:30 left")])
def test_the_time_left_is_that_of_all_epochs(clock: Any, patience: int | None, said: str) -> None:
    file = io.StringIO()
    progress = Progress(Console(file=file, force_terminal=True, width=80, legacy_windows=False))
    played(progress, trainer(epochs=50, batches=4, patience=patience), clock, batches=20, seconds=0.5)
    (*_, last) = shown(file.getvalue())
    assert last[0].startswith("epoch 5/50 ")
    assert said in last[0]
    assert ("at most" in last[0]) == (patience is not None)
    assert "2.0 steps/s" in last[0]
    assert last[1].startswith("train/loss 0.5000  val/loss 0.2500  val/accuracy 0.7500")


def test_drawing_takes_no_more_than_its_share(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drawing takes 5 ms here; the run, of steps of 8 ms, may lose half a per cent of its time."""
    progress = Progress(Console(file=io.StringIO(), force_terminal=True, width=80, legacy_windows=False))
    drawn: list[float] = []
    update = module.Live.update

    def slow(self: Any, *given: Any, **named: Any) -> None:
        drawn.append(clock.now)
        clock.now += 0.005
        update(self, *given, **named)

    monkeypatch.setattr(module.Live, "update", slow)
    played(progress, trainer(), clock, batches=2000, seconds=0.008)
    assert 0.005 * len(drawn) < 0.005 * (clock.now - 1000.0) + 0.005
    assert len(drawn) >= 10


def test_lines_where_there_is_no_terminal(clock: Any) -> None:
    file = io.StringIO()
    progress, run = Progress(Console(file=file, width=80)), trainer(epochs=3)
    played(progress, run, clock, batches=12, seconds=0.5)
    progress.on_train_end(run, None)
    lines = file.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["1/3", "2/3", "3/3"]  # the last one once
    assert "\r" not in file.getvalue()


def test_the_last_epoch_is_said_also_where_epochs_are_short(clock: Any) -> None:
    file = io.StringIO()
    progress, run = Progress(Console(file=file, width=80)), trainer(epochs=300)
    played(progress, run, clock, batches=1200, seconds=0.001)
    progress.on_train_end(run, None)
    numbers = [line.split()[1] for line in file.getvalue().splitlines()]
    assert numbers[-1] == "300/300"
    assert len(numbers) == len(set(numbers)) <= 3


# slow tier: a whole run again; `test_no_line_is_wider_than_the_terminal` has many widths
@pytest.mark.parametrize("columns", [pytest.param(80, marks=pytest.mark.slow), 40])
def test_a_run_on_a_terminal(tmp_path: Path, tiny: list[str], columns: int) -> None:
    """A real terminal, as far as a program can tell: nothing on it is wider than it is, and its cursor comes back."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, str(TRAIN_PY), *tiny, "data.max_epochs=12", "run_dir=run"]
    environment = {**processes.make_environment(), "TERM": "xterm-256color", "OMP_NUM_THREADS": "1"}
    environment.pop("COLUMNS", None)
    screen = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **screen) as process:  # type: ignore[call-overload]
        os.close(theirs)
        said = b""
        while True:
            try:
                found = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            said += found
            if not found:
                break
    os.close(ours)
    text = said.decode()
    assert process.returncode == 0, text
    training = text[: text.index("gat on planted_graph")]
    frames = shown(training)
    assert len(frames) >= 2
    assert all(len(line) <= columns for frame in frames for line in frame)
    assert frames[-1][0].startswith("epoch ")
    assert re.search(r" in \d+:\d\d:\d\d$", frames[-1][0].rstrip())
    assert training.rindex("\x1b[?25h") > training.rindex("\x1b[?25l")
