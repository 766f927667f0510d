"""What watches a training run: keeps weights, stops, guards against NaN, shows progress."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from torch import Tensor

from zoo import checkpoint
from zoo.errors import ConfigError, InterruptedRunError, TrainingError, nearest
from zoo.tasks.contract import Task


class Keeper(pl.Callback):
    """Keeps the best weights and the last state, and stops when nothing improves.

    The best weights wait in memory and are written together with `last.ckpt`, so that the two always belong together
    and a short epoch does not pay for a file.

    Args:
        monitors: Metric -> max or min. The best epoch is one in which all are at least as good as ever before;
            patience counts the epochs since any of them improved. One metric: what everyone does. Accuracy and loss,
            with ties: the rule of GAT's authors. Empty: the module's own primary metric.
        patience: Epochs without improvement before stopping; None never stops.
        ties: Being exactly as good as ever before is an improvement too, to patience.
        every_seconds: How often `last.ckpt` is written.
        run_dir: Where `checkpoints/` is.
        about: The checkpoint's `zoo` section.
    """

    def __init__(
        self,
        *,
        monitors: Mapping[str, Literal["min", "max"]] | None = None,
        patience: int | None = 20,
        ties: bool = False,
        every_seconds: float = 60.0,
        run_dir: Path,
        about: Mapping[str, Any],
    ) -> None:
        self.monitors = dict(monitors or {})
        for name, mode in self.monitors.items():
            if mode not in ("min", "max"):
                raise ConfigError(f"callbacks.keeper.monitors: {name} is to be 'min' or 'max', got {mode!r}")
        self.patience = patience
        self.ties = ties
        self.every_seconds = every_seconds
        self.best_path = run_dir / "checkpoints" / "best.ckpt"
        self.last_path = run_dir / "checkpoints" / "last.ckpt"
        self.about = dict(about)
        self.best_scores: dict[str, float] = {}
        self.waited = 0
        self._best: dict[str, Any] | None = None
        self._saved_at = time.monotonic()

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self.monitors:
            assert isinstance(pl_module, Task)
            self.monitors = {pl_module.primary: "max"}
        self._saved_at = time.monotonic()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        metrics = plain(trainer.callback_metrics)
        for name in self.monitors:
            if name not in metrics:
                raise ConfigError(f"callbacks.keeper.monitors: {name!r} is not measured. {nearest(name, metrics)}")
        as_good = [self._is_gain(name, metrics[name], or_tie=True) for name in self.monitors]
        if all(as_good):
            self._best = self._content(pl_module.state_dict(), metrics, trainer)
        gains = as_good if self.ties else [self._is_gain(name, metrics[name], or_tie=False) for name in self.monitors]
        self.waited = 0 if any(gains) else self.waited + 1
        for name, mode in self.monitors.items():
            best = max if mode == "max" else min
            if not math.isnan(metrics[name]):  # nothing would ever be better than NaN
                self.best_scores[name] = best(self.best_scores.get(name, metrics[name]), metrics[name])
        if self.patience is not None and self.waited >= self.patience:
            trainer.should_stop = True

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if time.monotonic() - self._saved_at >= self.every_seconds:
            self.save(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._best is None and not self.best_path.exists():
            self._best = self._content(pl_module.state_dict(), plain(trainer.callback_metrics), trainer)
        self.save(trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """A stop between two steps loses nothing; after any other error the state may be half a step."""
        if isinstance(exception, TrainingError | InterruptedRunError):
            self.save(trainer)

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, content: dict[str, Any]) -> None:
        content["zoo"] = {**self.about, "metrics": plain(trainer.callback_metrics)}

    def state_dict(self) -> dict[str, Any]:
        return {"best_scores": dict(self.best_scores), "waited": self.waited}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_scores = dict(state_dict["best_scores"])
        self.waited = state_dict["waited"]

    def save(self, trainer: pl.Trainer) -> None:
        """Both files. The best goes first: a last.ckpt on the disk never speaks of a best that is not there."""
        if self._best is not None and trainer.is_global_zero:
            checkpoint.write(self.best_path, self._best)
            self._best = None
        trainer.save_checkpoint(self.last_path)
        self._saved_at = time.monotonic()

    def _is_gain(self, name: str, value: float, *, or_tie: bool) -> bool:
        if name not in self.best_scores:
            return not math.isnan(value)
        best = self.best_scores[name]
        if value == best:
            return or_tie
        return value > best if self.monitors[name] == "max" else value < best

    def _content(self, weights: Mapping[str, Tensor], metrics: dict[str, float], trainer: pl.Trainer) -> dict[str, Any]:
        kept = {name: value.detach().cpu().clone() for name, value in weights.items()}
        about = {**self.about, "metrics": metrics}
        return {"zoo": about, "state_dict": kept, "epoch": trainer.current_epoch, "global_step": trainer.global_step}


class NanGuard(pl.Callback):
    """Stops before a loss or gradient that is not finite reaches the weights, and names the batch."""

    def __init__(self) -> None:
        self._batch: Any = None
        self._number = 0

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._batch, self._number = batch, batch_idx

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        if not bool(torch.isfinite(loss)):
            self._stop(trainer, f"the loss is {loss.item()}")

    def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Any) -> None:
        if trainer.precision == "16-mixed":
            return  # the scaler skips such steps itself
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        if gradients and not bool(torch.isfinite(torch.nn.utils.get_total_norm(gradients))):
            self._stop(trainer, "a gradient is not finite")

    def _stop(self, trainer: pl.Trainer, what: str) -> None:
        where = f"epoch {trainer.current_epoch}, step {trainer.global_step}, batch {self._number}"
        bad = ", ".join(_not_finite(self._batch))
        inputs = f"Not finite in that batch: {bad}." if bad else "All of that batch's inputs are finite."
        raise TrainingError(
            f"{what} at {where} ({_named(self._batch)}). {inputs} The weights before this step are kept in last.ckpt. "
            "Try a lower optimizer.lr, trainer.gradient_clip_val=1.0, or trainer.precision=32-true."
        )


def _named(batch: Any) -> str:
    ids = getattr(batch, "ids", None)
    if ids is None or not len(ids):
        return "a batch without ids"
    shown = ", ".join(repr(str(each)) for each in ids[:5])
    return f"ids {shown}" + (f" and {len(ids) - 5:,} more" if len(ids) > 5 else "")


def _not_finite(batch: Any) -> Iterator[str]:
    fields = batch.to_dict() if hasattr(batch, "to_dict") else vars(batch) if hasattr(batch, "__dict__") else {}
    for name, value in fields.items():
        value = value if isinstance(value, Tensor) else getattr(value, "values", value)  # of sparse features
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all()):
            yield name


class Interruption(pl.Callback):
    """Ctrl-C and SIGTERM are honoured between two steps: nothing is lost. A second Ctrl-C does not wait."""

    def __init__(self) -> None:
        self._asked: signal.Signals | None = None
        self._before: dict[int, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # by now Lightning has put its own handlers in place, and remembers those that it gives back at the end
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if self._asked is not None:
            raise InterruptedRunError(f"stopped by {self._asked.name} after step {trainer.global_step}")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._restore()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._restore()

    def _ask(self, number: int, _: Any) -> None:
        if self._asked is not None:
            raise KeyboardInterrupt
        self._asked = signal.Signals(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


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
