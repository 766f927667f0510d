"""The progress of a run: a bar on a terminal, a line for each epoch elsewhere; and how long it waits for its data."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Timer
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from zoo.data.loader import Loader
from zoo.training.loggers import get_logged_metrics

_SPEED_WIDTH = 60
"""The width in columns from which the speed is shown."""
_MIN_INTERVAL, _INTERVAL_PER_DRAW_TIME = 0.1, 200.0
"""The least seconds between two drawings of the bar, also as a multiple of the time that the last one took."""


class Progress(pl.Callback):
    """Shows a bar with the time left on a terminal; elsewhere it prints a line an epoch, at most one a second.

    The training loop itself draws the bar, so rarely that it takes less than half a per cent of the time.

    Args:
        console: Where to show it; standard error if not given.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console(stderr=True, force_terminal=sys.stderr.isatty()) if console is None else console
        self._is_terminal = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None
        self._started = self._due = 0.0
        self._steps = self._batches = 0
        """Steps before this session, and batches since its start."""
        self._printed_epoch: int | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._started, self._due = time.monotonic(), 0.0
        self._steps, self._batches = trainer.global_step, 0
        self._printed_epoch = None
        if self._is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._batches += 1
        if self._live is not None and time.monotonic() > self._due:
            done = trainer.current_epoch * trainer.num_training_batches + batch_idx + 1
            self._draw(trainer, trainer.current_epoch + 1, int(done))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._live is None and time.monotonic() > self._due:
            self._print_line(trainer, trainer.current_epoch + 1)
            self._due = time.monotonic() + 1.0

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epochs = trainer.current_epoch  # it has counted the last epoch already
        if self._live is not None:
            self._draw(trainer, epochs, int(epochs * trainer.num_training_batches), is_over=True)
            self._stop()
        elif self._printed_epoch != epochs:
            self._print_line(trainer, epochs)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        """Restores the terminal: its cursor, and what other parts print."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, trainer: pl.Trainer, epoch: int, done: int, *, is_over: bool = False) -> None:
        assert self._live is not None
        start = time.monotonic()
        elapsed = start - self._started
        total = int((trainer.max_epochs or 0) * trainer.num_training_batches)
        if is_over:
            time_text = f"in {_format_seconds(elapsed)}"
        else:
            seconds_left = elapsed / max(1, self._batches) * (total - done)
            time_text = _format_time_left(trainer, seconds_left)
        line = Table.grid(padding=(0, 1), expand=True)
        line.add_column(no_wrap=True, overflow="ellipsis")
        line.add_column(ratio=1)
        line.add_column(no_wrap=True, overflow="ellipsis", justify="right")
        speed = f"{self._compute_rate(trainer, elapsed):.1f} steps/s, " if self._console.width >= _SPEED_WIDTH else ""
        line.add_row(
            f"epoch {epoch}/{trainer.max_epochs}", ProgressBar(total=total, completed=done), f"{speed}{time_text}"
        )
        metrics = Text("  ".join(_format_metrics(trainer)), no_wrap=True, overflow="ellipsis")
        self._live.update(Group(line, metrics), refresh=True)
        end = time.monotonic()
        self._due = end + max(_MIN_INTERVAL, _INTERVAL_PER_DRAW_TIME * (end - start))

    def _print_line(self, trainer: pl.Trainer, epochs: int) -> None:
        self._printed_epoch = epochs
        rate = self._compute_rate(trainer, time.monotonic() - self._started)
        position = f"epoch {epochs:>4}/{trainer.max_epochs}  step {trainer.global_step:>6}  {rate:6.1f} steps/s"
        print("  ".join([position, *_format_metrics(trainer)]), file=self._console.file, flush=True)

    def _compute_rate(self, trainer: pl.Trainer, elapsed: float) -> float:
        return (trainer.global_step - self._steps) / max(1e-9, elapsed)


def _format_time_left(trainer: pl.Trainer, seconds: float) -> str:
    """Returns the time left, as text: at most so long if patience may end the run earlier."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    timers = [callback.time_remaining() for callback in callbacks if isinstance(callback, Timer)]
    seconds = min([seconds, *(remaining for remaining in timers if remaining is not None)])
    may_stop = any(getattr(callback, "patience", None) is not None for callback in callbacks)
    return f"{'at most ' * may_stop}{_format_seconds(seconds)} left"


def _format_seconds(seconds: float) -> str:
    return str(timedelta(seconds=max(0, round(seconds))))


def _format_metrics(trainer: pl.Trainer) -> list[str]:
    """Returns the last training loss, then the metrics of the last validation."""
    metrics = get_logged_metrics(trainer)
    loss = {"train/loss": metrics["train/loss"]} if "train/loss" in metrics else {}  # not in the first batch
    other_metrics = {name: value for name, value in metrics.items() if "train/" not in name}
    return [f"{name} {value:.4f}" for name, value in {**loss, **other_metrics}.items()]


class DataWaitTimer(pl.Callback):
    """Adds up for how many seconds training and validation wait for batches, in all sessions of a run."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._take(trainer.train_dataloader)

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._take(trainer.val_dataloaders)

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds = state_dict["seconds"]

    def _take(self, loader: Any) -> None:
        if isinstance(loader, Loader):
            self.seconds += loader.pop_wait_time()
