"""`kill -9` at random moments of real processes; what is continued equals what was never killed.

`python tests/training/test_kills.py [kills]` does it and prints the outcome, which results/resume-kills/ records.
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

OPTIONS = [
    "model=gat",
    *["data.nodes=240", "data.classes=3", "data.tags=4", "data.trusted=2", "data.distractors=2", "data.width=12"],
    *["model.net.dim=4", "model.net.heads=2", "model.net.dropout=0.3", "attention.dropout=0.3"],
    *["data.batch_size=20", "data.max_epochs=6", "trainer=cpu", "trainer.accumulate_grad_batches=3"],
    *["trainer.log_every_n_steps=1", "callbacks=ema", "callbacks.average.decay=0.9", "scheduler=cosine", "logger=csv"],
    "callbacks.keeper.every_seconds=0",  # a state before every step: many moments in which one is being written
]


@pytest.mark.slow
def test_killed_fifty_times() -> None:
    assert killed(50) == {"kills": 50, "bit_equal": 50}


def killed(kills: int, seed: int = 0) -> dict[str, int]:
    """Runs, each of which is killed once and continued; how many were, and how many ended as the whole one did."""
    drawn = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warm_up(folder / "warm")
        started = time.monotonic()
        assert os.waitstatus_to_exitcode(os.waitpid(begun(folder / "whole"), 0)[1]) == 0
        longest = time.monotonic() - started
        equal = count = 0
        while count < kills:
            run_dir = folder / "killed"
            shutil.rmtree(run_dir, ignore_errors=True)
            process = begun(run_dir)
            time.sleep(drawn.uniform(0.0, longest))
            os.kill(process, signal.SIGKILL)
            if not os.WIFSIGNALED(os.waitpid(process, 0)[1]):
                continue  # it was faster
            count += 1
            code = os.waitstatus_to_exitcode(os.waitpid(begun(run_dir), 0)[1])
            equal += code == 0 and same(run_dir, folder / "whole")
        return {"kills": count, "bit_equal": equal}


def warm_up(run_dir: Path) -> None:
    """A run in this process: all is imported then, and those that are forked from it lose no time."""
    from zoo.commandline.cli import main

    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main(["train", *OPTIONS, f"run_dir={run_dir}"]) == 0


def begun(run_dir: Path) -> int:
    """A run or its continuation in a process of its own."""
    from zoo.commandline.cli import main

    process = os.fork()
    if process:
        return process
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os._exit(main(["train", *OPTIONS, "resume=auto", f"run_dir={run_dir}"]))
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
    outcome = killed(*map(int, sys.argv[1:2] or ["50"]))
    print(json.dumps({**outcome, "command": command, "commit": commit}, indent=2))
