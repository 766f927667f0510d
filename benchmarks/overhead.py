"""Measures the cost of a safe run: the same training by plain Lightning with a DataLoader, and as this project runs it.

    python benchmarks/overhead.py                # 70 s each, twice in turns: with at least one checkpoint a run
    python benchmarks/overhead.py --seconds 20
    python benchmarks/overhead.py --clock processor --threads 1    # on a machine that others use too

Ours includes the loader whose order and position are saved, a checkpoint every minute with everything that exact
resuming needs, the guard against NaN, handling of Ctrl-C, progress and metrics.csv. Plain Lightning runs without a
logger, checkpoints and progress.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from filing import command, file
from measuring import CLOCKS
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from zoo.attention import AttentionMap
from zoo.config import compose
from zoo.data.loader import Loader
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Task
from zoo.training.environment import find_commit
from zoo.training.run_config import RunConfig
from zoo.training.setup import make_run_trainer

EXAMPLES, WIDTH, CLASSES, BATCH = 20_000, 512, 10, 256


class Dense(Task):
    """A network whose step takes about as long as that of a small model."""

    primary = "val/loss"
    primary_mode = "min"
    headline = ("loss",)

    def __init__(self) -> None:
        super().__init__(optimization=OptimizerConfig(optimizer=partial(torch.optim.Adam, lr=1e-4)))
        sizes = [WIDTH, 1024, 1024, CLASSES]
        layers: list[nn.Module] = []
        for first, second in pairwise(sizes):
            layers += [nn.Linear(first, second), nn.ReLU(), nn.Dropout(0.1)]
        self.net = nn.Sequential(*layers[:-2])

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train/loss", loss, on_step=True, on_epoch=False, batch_size=len(batch[0]))
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val/loss", F.cross_entropy(self.net(batch[0]), batch[1]), batch_size=len(batch[0]))

    def explain(self, batch: Any) -> AttentionMap:
        raise TypeError("this network attends to nothing")

    def predict_step(self, batch: Any, batch_idx: int = 0) -> dict[str, list[Any]]:
        return {}

    def vocabularies(self) -> dict[str, dict[str, int]]:
        return {}


class Clock(pl.Callback):
    """Measures steps per second, from the first step to the last.

    Args:
        clock: Function that returns seconds: elapsed, or of the processor.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock

    def on_train_start(self, *_: Any) -> None:
        self.started = self.clock()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.steps, self.seconds = trainer.global_step, self.clock() - self.started

    @property
    def rate(self) -> float:
        return self.steps / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=70, help="of each run")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="time that counts")
    parser.add_argument("--out", type=Path, help="write the figures to this JSON file")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(EXAMPLES, WIDTH, generator=generator)
    data = TensorDataset(features, torch.randint(0, CLASSES, (EXAMPLES,), generator=generator))
    limit = f"00:{options.seconds // 3600:02}:{options.seconds // 60 % 60:02}:{options.seconds % 60:02}"
    rates: dict[str, list[float]] = {"plain": [], "ours": []}
    for _ in range(options.turns):
        rates["plain"].append(_plain(data, limit, CLOCKS[options.clock]))
        rates["ours"].append(_ours(data, limit, CLOCKS[options.clock]))
    medians = {name: statistics.median(each) for name, each in rates.items()}
    result = {
        "steps_per_second": {name: [round(rate, 2) for rate in each] for name, each in rates.items()},
        "overhead_percent": round(100 * (medians["plain"] / medians["ours"] - 1), 2),
        "seconds_each": options.seconds,
        "command": command(),
        "commit": find_commit(),
    }
    print(json.dumps(result, indent=2))
    file(result, options.out)


def _plain(data: TensorDataset, limit: str, read: Callable[[], float]) -> float:
    clock = Clock(read)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_time=limit,
        max_epochs=-1,
        callbacks=[clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    torch.manual_seed(0)
    loaders = DataLoader(data, BATCH, shuffle=True), DataLoader(data, BATCH)
    trainer.fit(Dense(), *loaders)
    return clock.rate


def _ours(data: TensorDataset, limit: str, read: Callable[[], float]) -> float:
    clock = Clock(read)
    resolved = compose.compose(["model=gat", "logger=csv", "trainer=cpu", "callbacks.checkpoint.patience=null"])
    resolved["trainer"]["max_time"] = limit
    about = {"format": 1, "version": "0", "model": "dense", "config": {}, "data": {}, "sizes": {}}
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
        trainer = make_run_trainer(RunConfig(resolved), Path(folder), -1, about)
        trainer.callbacks.append(clock)  # type: ignore[attr-defined]
        torch.manual_seed(0)
        collate = torch.utils.data.default_collate
        loaders = (
            Loader(data, collate=collate, batch_size=BATCH, shuffle=True, even=True),  # type: ignore[arg-type]
            Loader(data, collate=collate, batch_size=BATCH),  # type: ignore[arg-type]
        )
        trainer.fit(Dense(), *loaders)
        assert (Path(folder) / "checkpoints" / "last.ckpt").exists()
    return clock.rate


if __name__ == "__main__":
    main()
