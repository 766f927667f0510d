"""What is shown, and which layers are unfrozen, as epochs go by."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl

from zoo.tasks.contract import Task


class Thaw(pl.Callback):
    """Unfreezes layers at their epoch."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Task)
        if pl_module.optimisation.unfreeze:
            pl_module.optimisation.thaw(pl_module, trainer.current_epoch)


class Progress(pl.Callback):
    """One line that moves on a terminal, a line an epoch elsewhere, at most one a second."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._started = self._shown = 0.0
        self._first_step = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._started = time.monotonic()
        self._first_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._is_terminal and time.monotonic() - self._shown > 0.1:
            self._show(trainer, end="\r")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self._is_terminal and (time.monotonic() - self._shown > 1.0):
            self._show(trainer, end="\n")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._show(trainer, end="\n", epochs=trainer.current_epoch)

    def _show(self, trainer: pl.Trainer, end: str, epochs: int | None = None) -> None:
        epochs = trainer.current_epoch + 1 if epochs is None else epochs  # at the end the last epoch counts already
        self._shown = time.monotonic()
        rate = (trainer.global_step - self._first_step) / max(1e-9, self._shown - self._started)
        metrics = "  ".join(
            f"{name} {value:.4f}" for name, value in plain(trainer.callback_metrics).items() if "train/" not in name
        )
        # during the first training batch there is no loss yet
        loss = plain(trainer.callback_metrics).get("train/loss")
        said = f"epoch {epochs:>4}/{trainer.max_epochs}  step {trainer.global_step:>6}"
        said += f"  {rate:6.1f} steps/s" + (f"  train/loss {loss:.4f}" if loss is not None else "") + f"  {metrics}"
        print(said.ljust(100) if self._is_terminal else said, end=end, file=sys.stderr, flush=True)


def plain(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics as floats."""
    return {name: float(value) for name, value in metrics.items()}
