"""Keeps the best weights and the last state, and stops a run that no longer improves."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from zoo import distributed
from zoo.checkpoints import checkpoint
from zoo.data.loader import Loader
from zoo.errors import CheckpointError, ConfigError, InterruptedRunError, TrainingError, did_you_mean
from zoo.tasks.base import Mode, Task
from zoo.training import resume_state
from zoo.training.callbacks.ema import get_averaged_weights
from zoo.training.loggers import get_logged_metrics
from zoo.training.resume_state import PartialEpochMetrics
from zoo.training.run_config import BEST, LAST
from zoo.training.run_errors import make_missing_dir_error
from zoo.types import NonNegativeFloat, PositiveInt, validate_ranges

_LOSS = "val/loss"


@validate_ranges
class CheckpointAndStop(pl.Callback):
    """Writes `best.ckpt` and `last.ckpt`, and stops when no metric improves.

    The best weights stay in memory until `last.ckpt` is written, so that the two files always belong together and a
    short epoch costs no file. The previous best.ckpt is removed once both are written.

    A state is saved before a training batch and between two steps of the optimizer. At that point the last epoch has
    been validated, and metrics.csv holds every metric that was logged.

    Args:
        monitors: Metric -> max or min; the module's primary metric if empty. The best epoch is the last in which all
            were at least as good as in any before; patience counts the epochs since any of them improved. Accuracy
            and loss with `ties` are the rule of GAT's authors. Epochs in which nothing was learned
            (`Task.primary_worst`) are equal by the primary metric, and the loss decides between them.
        patience: Epochs without improvement before stopping; None never stops.
        ties: Whether a value equal to the best counts as an improvement for patience.
        save_every_seconds: The time between two writings of `last.ckpt`.
        run_dir: The directory of the run, in which `checkpoints/` is.
        metadata: The section `zoo` of the checkpoints.
    """

    def __init__(
        self,
        *,
        monitors: Mapping[str, Mode] | None = None,
        patience: PositiveInt | None = 20,
        ties: bool = False,
        save_every_seconds: NonNegativeFloat = 60.0,
        run_dir: Path,
        metadata: Mapping[str, Any],
    ) -> None:
        self.monitors = dict(monitors or {})
        self.patience = patience
        self.ties = ties
        self.save_every_seconds = save_every_seconds
        self.best_path = run_dir / BEST
        self.last_path = run_dir / LAST
        self._run_dir = run_dir
        self._folder: tuple[int, int] | None = None
        """The identity of the run directory at the start; another may get its name."""
        self.metadata = dict(metadata)
        self.best_scores: dict[str, float] = {}
        self._worst: dict[str, float] = {}
        """Monitor -> value of a model that has learned nothing."""
        self.epochs_without_improvement = 0
        self.seconds = 0.0
        """The time of training, in all sessions."""
        self._best_step: int | None = None
        self._best: dict[str, Any] | None = None
        self._saved_at = self._counted_at = time.monotonic()
        self._epoch_metrics = PartialEpochMetrics()
        self._restored: dict[str, Any] = {}
        self._continued: dict[str, Any] = {}

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, content: dict[str, Any]) -> None:
        self._restored = content.get("exactly", {})
        self._continued = content

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._folder = _get_identity(self._run_dir)
        if self._continued:  # the optimizers exist, and Lightning has not restored their states yet
            with resume_state.translate_validation_errors(trainer.ckpt_path):
                resume_state.check(self._continued, trainer)
            self._continued = {}
        if not self.monitors:
            assert isinstance(pl_module, Task)
            self.monitors = {pl_module.primary: pl_module.primary_mode}
            if pl_module.primary_worst is not None:
                self._worst = {pl_module.primary: pl_module.primary_worst}
        self._saved_at = self._counted_at = time.monotonic()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.patience is not None and self.epochs_without_improvement >= self.patience:  # the run had stopped early
            trainer.should_stop = True
        # Lightning does this itself, unless a schedule has asked for the number of batches
        loader = trainer.train_dataloader
        if self._restored and isinstance(loader, Loader):
            loader.load_state_dict(self._restored["place"])

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loader = trainer.train_dataloader
        if isinstance(loader, Loader):
            loader.set_epoch(trainer.current_epoch)

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        if self._restored:  # Lightning's own start-up has drawn random numbers until here
            states = self._restored["generators"]
            if trainer.global_rank < len(states):
                resume_state.set_rng_state(states[trainer.global_rank])
                self._epoch_metrics.load(self._restored["epoch_metrics"][trainer.global_rank], pl_module)
            self._restored = {}
            trainer.fit_loop._restarting = False  # else ReduceLROnPlateau skips the end of this epoch
        if resume_state.is_step_boundary(trainer):
            is_due = time.monotonic() - self._saved_at >= self.save_every_seconds
            if distributed.all_reduce_any(is_due):
                self.save(trainer)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._epoch_metrics.add(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        metrics = get_logged_metrics(trainer)
        for name in self.monitors:
            if name not in metrics:
                raise ConfigError(
                    f"callbacks.checkpoint.monitors: {name!r} is not measured. {did_you_mean(name, metrics)}"
                )
        values = {**metrics, **{name: self._limit(name, metrics[name]) for name in self.monitors}}
        no_worse = [self._is_gain(name, values, or_tie=True) for name in self.monitors]
        if all(no_worse):
            self._best = self._make_content(get_averaged_weights(trainer, pl_module), metrics, trainer)
        gains = no_worse if self.ties else [self._is_gain(name, values, or_tie=False) for name in self.monitors]
        self.epochs_without_improvement = 0 if any(gains) else self.epochs_without_improvement + 1
        for name, mode in self._get_directions().items():
            best = max if mode == "max" else min
            if name in values and not math.isnan(values[name]):  # no value is better than NaN
                self.best_scores[name] = best(self.best_scores.get(name, values[name]), values[name])
        if self.patience is not None and self.epochs_without_improvement >= self.patience:
            trainer.should_stop = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._best is None and not self.best_path.exists():
            content = self._make_content(get_averaged_weights(trainer, pl_module), get_logged_metrics(trainer), trainer)
            self._best = {**content, "epoch": max(0, trainer.current_epoch - 1)}  # it has counted that epoch already
        self.save(trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Saves after a stop between two steps of training. After any other error a step may be half done.

        In an evaluation all has been saved, and other processes, with which a state is saved, may be anywhere.
        """
        if trainer.state.fn == "fit" and isinstance(exception, TrainingError | InterruptedRunError):
            self.save(trainer)

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, content: dict[str, Any]) -> None:
        content["zoo"] = {**self.metadata, "metrics": get_logged_metrics(trainer)}
        content["exactly"] = {
            "generators": distributed.all_gather_object(resume_state.get_rng_state()),
            "epoch_metrics": distributed.all_gather_object(PartialEpochMetrics.state(trainer, pl_module)),
        }
        content["exactly"]["place"] = resume_state.rewind_progress(content["loops"], trainer.accumulate_grad_batches)

    def state_dict(self) -> dict[str, Any]:
        now = time.monotonic()
        self.seconds, self._counted_at = self.seconds + now - self._counted_at, now
        names = ("best_scores", "epochs_without_improvement", "seconds")
        return {**{name: getattr(self, name) for name in names}, "best_step": self._best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best_scores = dict(state_dict["best_scores"])
        self.epochs_without_improvement = state_dict["epochs_without_improvement"]
        self.seconds = state_dict["seconds"]
        self._best_step = state_dict["best_step"]

    def save(self, trainer: pl.Trainer) -> None:
        """Writes both files, the best first: the best.ckpt that last.ckpt refers to always exists."""
        previous = self.best_path.with_name("best.previous.ckpt")
        if trainer.is_global_zero and self._folder is not None and self._folder != _get_identity(self._run_dir):
            raise make_missing_dir_error(self._run_dir)  # the run is not written to another directory of that name
        try:
            for logger in trainer.loggers if trainer.is_global_zero else ():
                logger.save()
            if self._best is not None:
                self._best_step = self._best["global_step"]
                if trainer.is_global_zero:
                    _link_or_copy(self.best_path, previous)
                    checkpoint.write(self.best_path, self._best)
            trainer.save_checkpoint(self.last_path)
            if trainer.is_global_zero:
                previous.unlink(missing_ok=True)
        except (OSError, RuntimeError) as error:  # torch.save turns some failures to write into RuntimeError
            if not trainer.is_global_zero or not _is_disk_error(error):
                raise
            raise CheckpointError(
                f"{self.last_path} cannot be written: {_find_reason(error)}. Those that were there are whole. "
                "Make room, then continue with resume=auto and the same options"
            ) from error
        self._best = None
        self._saved_at = time.monotonic()

    def _get_directions(self) -> dict[str, Mode]:
        """Returns the metrics whose best values are kept, with their better directions."""
        return {**({_LOSS: "min"} if self._worst else {}), **self.monitors}

    def _limit(self, name: str, value: float) -> float:
        """Returns the value, or that of a model that has learned nothing if it is worse, as an error rate of 1.3 is."""
        if name not in self._worst:
            return value
        return max(value, self._worst[name]) if self.monitors[name] == "max" else min(value, self._worst[name])

    def _is_gain(self, name: str, values: Mapping[str, float], *, or_tie: bool) -> bool:
        value = values[name]
        if name not in self.best_scores:
            return not math.isnan(value)
        best = self.best_scores[name]
        if value == best:
            if value == self._worst.get(name) and _LOSS in values and _LOSS in self.best_scores:
                lowest = self.best_scores[_LOSS]
                return values[_LOSS] <= lowest if or_tie else values[_LOSS] < lowest
            return or_tie
        return value > best if self.monitors[name] == "max" else value < best

    def _make_content(
        self, weights: Mapping[str, Tensor], metrics: dict[str, float], trainer: pl.Trainer
    ) -> dict[str, Any]:
        state_dict = {name: value.detach().cpu().clone() for name, value in weights.items()}
        metadata = {**self.metadata, "metrics": metrics}
        return {
            "zoo": metadata,
            "state_dict": state_dict,
            "epoch": trainer.current_epoch,
            "global_step": trainer.global_step,
        }


def _get_identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _link_or_copy(path: Path, name: Path) -> None:
    """Gives a file a second name, under which it stays when it is replaced; copies it where there are no links."""
    name.unlink(missing_ok=True)
    if path.exists():
        try:
            os.link(path, name)
        except OSError:
            shutil.copyfile(path, name)


def _is_disk_error(error: BaseException) -> bool:
    signs = ("PytorchStreamWriter", "unexpected pos")
    causes = islice(_iter_causes(error), 10)
    return any(isinstance(cause, OSError) or any(map(str(cause).__contains__, signs)) for cause in causes)


def _find_reason(error: BaseException) -> str:
    reasons = (cause.strerror for cause in _iter_causes(error) if isinstance(cause, OSError) and cause.strerror)
    return next(reasons, str(error).splitlines()[0])


def _iter_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error, and those in whose handling it was raised."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
