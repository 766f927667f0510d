"""`kill -9` at random moments of real processes; what is continued equals what was never killed.

`python tests/training/test_kills.py [kills]` does it and prints the outcome, which results/resume-kills/ records;
`... [kills] workers [seed]` does it with data workers, which results/resume-kills-workers/ records by seed;
`... [kills] processes` with two processes of training, which results/resume-kills-processes/ records.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

GRAPH = [
    "model=gat",
    *["data.nodes=240", "data.classes=3", "data.tags=4", "data.trusted=2", "data.distractors=2", "data.width=12"],
    *["model.net.dim=4", "model.net.heads=2", "model.net.dropout=0.3", "attention.dropout=0.3"],
    *["data.batch_size=20", "data.max_epochs=6", "trainer=cpu", "trainer.accumulate_grad_batches=3"],
    *["trainer.log_every_n_steps=1", "callbacks=ema", "callbacks.average.decay=0.9", "scheduler=cosine", "logger=csv"],
    "callbacks.checkpoint.save_every_seconds=0",  # a state before every step: many moments of writing
]
TEXTS = [
    "model=han",
    "data=text_table",
    f"data.table={Path(__file__).parents[2] / 'data' / 'samples' / 'documents' / 'reviews.csv'}",
    *["model.net.dim=8", "model.net.dropout=0.3", "attention.dropout=0.3", "threads=1"],
    *["data.batch_size=2", "data.max_epochs=4", "trainer=cpu", "trainer.log_every_n_steps=1", "logger=csv"],
    *["callbacks=ema", "callbacks.average.decay=0.9", "callbacks.checkpoint.save_every_seconds=0"],
]


@pytest.mark.slow
def test_killed_fifty_times() -> None:
    assert killed(50) == {"kills": 50, "bit_equal": 50}


@pytest.mark.slow
def test_killed_fifty_times_with_workers() -> None:
    assert killed(50, "workers") == {"kills": 50, "bit_equal": 50, "with_workers_alive": 0}


def killed(kills: int, kind: str = "graph", seed: int = 0) -> dict[str, int]:
    """Runs, each of which is killed once and continued at once; how many were, and how many ended as the whole one did.

    Args:
        kills: How many.
        kind: `graph`, a run of one process; `workers`, a run on texts with one data worker and two in turn; or
            `processes`, the first with two processes, of which the one that started them is killed.
        seed: Of the moments.
    """
    drawn = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = [*TEXTS, f"paths.cache={folder / 'cache'}"] if kind == "workers" else GRAPH
        if kind == "processes":
            options = [*options, "trainer.devices=2"]
        warm_up(folder / "warm", options)
        started = time.monotonic()
        assert os.waitstatus_to_exitcode(os.waitpid(begun(folder / "whole", options), 0)[1]) == 0
        longest = time.monotonic() - started
        equal = count = alive = 0
        while count < kills:
            run_dir = folder / "killed"
            shutil.rmtree(run_dir, ignore_errors=True)
            given = [*options, f"data.num_workers={count % 2 + 1}"] if kind == "workers" else options
            process = begun(run_dir, given)
            time.sleep(drawn.uniform(0.0, longest))
            os.kill(process, signal.SIGKILL)
            if not os.WIFSIGNALED(os.waitpid(process, 0)[1]):
                continue  # it was faster
            count += 1
            code = os.waitstatus_to_exitcode(os.waitpid(begun(run_dir, given), 0)[1])
            equal += code == 0 and same(run_dir, folder / "whole")
            alive += is_alive(process)
        found = {"kills": count, "bit_equal": equal}
        return found if kind == "graph" else {**found, f"with_{kind}_alive": alive}


@pytest.mark.slow
def test_killed_ten_times_with_two_processes() -> None:
    assert killed(10, "processes") == {"kills": 10, "bit_equal": 10, "with_processes_alive": 0}


def is_alive(group: int) -> bool:
    """Whether a process of a group still runs; one that has ended and is not yet reaped by process 1 does not."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, member = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it has ended meanwhile
            continue
        if int(member) == group and state != "Z":
            return True
    return False


def warm_up(run_dir: Path, options: list[str]) -> None:
    """A run in this process: all is imported then, and those that are forked from it lose no time."""
    from zoo.cli.main import main

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main(["train", *options, f"run_dir={run_dir}"]) == 0


def begun(run_dir: Path, options: list[str]) -> int:
    """A run or its continuation in a process and a group of its own."""
    from zoo.cli.main import main

    process = os.fork()
    if process:
        return process
    try:
        os.setpgid(0, 0)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os._exit(main(["train", *options, "resume=auto", f"run_dir={run_dir}"]))
    finally:
        os._exit(70)


def same(one: Path, other: Path) -> bool:
    import torch

    from zoo.checkpoints import checkpoint

    for name in ("last", "best"):
        ours, theirs = (checkpoint.read(each / "checkpoints" / f"{name}.ckpt")["state_dict"] for each in (one, other))
        if ours.keys() != theirs.keys() or not all(torch.equal(ours[key], theirs[key]) for key in ours):
            return False
    return (one / "metrics.csv").read_bytes() == (other / "metrics.csv").read_bytes()


if __name__ == "__main__":
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    command = " ".join(["python", "tests/training/test_kills.py", *sys.argv[1:]])
    given = sys.argv[1:]
    outcome = killed(int(given[0]) if given else 50, *given[1:2], *map(int, given[2:3]))
    print(json.dumps({**outcome, "command": command, "commit": commit}, indent=2))
