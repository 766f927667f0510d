"""Checks of runs in every domain: exact resuming, and equal results with one and two processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from zoo.checkpoints import checkpoint
from zoo.sweeps import processes
from zoo.training.callbacks.stopping import Interruption

ROOT = Path(__file__).resolve().parents[2]


def weights(run: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = checkpoint.read(run / "checkpoints" / "last.ckpt")["state_dict"]
    return found


def figures(run: Path) -> dict[str, Any]:
    return {k: v for k, v in json.loads((run / "metrics.json").read_text()).items() if "/" in k}


def stopped_and_continued(cli: Any, options: Sequence[str], after: int) -> Path:
    """Stops a run with SIGTERM after some steps, and continues it."""
    start = Interruption.on_train_batch_start

    def stop(self: Interruption, trainer: Any, *rest: Any) -> None:
        if trainer.global_step == after:
            self.request.by = signal.SIGTERM
        start(self, trainer, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Interruption, "on_train_batch_start", stop)
        assert cli("train", *options, "run_dir=run").code == 130
    done = cli("train", f"resume={Path('run/checkpoints/last.ckpt').absolute()}")
    assert done.code == 0, done.err
    return Path("run")


def same_run(run: Path, other: Path) -> bool:
    """Checks that weights are equal bit by bit, and metrics are equal."""
    ours = weights(run)
    return figures(run) == figures(other) and all(
        torch.equal(value, ours[name]) for name, value in weights(other).items()
    )


def command(*options: str) -> list[str]:
    return [sys.executable, str(ROOT / "train.py"), *options]


def finished(words: Sequence[str], folder: Path) -> None:
    """Runs a command in a folder, and waits for it."""
    environment = processes.environment(OMP_NUM_THREADS="1")
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def two_equal_one(cli: Any, options: Sequence[str], folder: Path) -> None:
    """Trains with two processes (`two`) and with one (`one`), and evaluates the model of two with one.

    The optimiser is SGD: where a gradient is zero but for rounding (biases of keys), Adam would step by the rounding.
    """
    same = [*options, "optimizer=sgd", "optimizer.lr=0.1"]
    finished(command(*same, "run_dir=two", "trainer=ddp_cpu", "trainer.devices=2"), folder)
    assert cli("train", *same, "run_dir=one", "threads=1").code == 0
    for name, value in weights(folder / "one").items():
        torch.testing.assert_close(weights(folder / "two")[name], value, rtol=0, atol=1e-5)
    found = figures(folder / "two")
    assert found == pytest.approx(figures(folder / "one"), abs=1e-5)
    for split in ("train", "val", "test"):
        assert cli("evaluate", "two/checkpoints/best.ckpt", "--split", split, "--out", f"{split}.json").code == 0
        alone = {k: v for k, v in json.loads(Path(f"{split}.json").read_text()).items() if "/" in k}
        assert alone
        assert alone == {key: found[key] for key in alone}
