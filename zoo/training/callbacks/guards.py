"""Stops a run without losing it: at a loss that is not finite, at unused parameters, at Ctrl-C and at SIGTERM."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from zoo import distributed, processes
from zoo.errors import ConfigError, InterruptedRunError, TrainingError, join_few
from zoo.training.resume_state import is_step_boundary

_NOTICE = b"\nzoo: stopping after this step, to save. Ctrl-C again, after two seconds, stops at once without saving\n"


class NanGuard(pl.Callback):
    """Stops before a loss or gradient that is not finite changes the weights, and names the batch."""

    def __init__(self) -> None:
        self._batch: Any = None
        self._number = 0

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._batch, self._number = batch, batch_idx

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        # of several processes only one may see it; their summed gradients show it to all
        if trainer.world_size == 1 and not bool(torch.isfinite(loss)):
            self._stop(trainer, f"the loss is {loss.item()}")

    def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Any) -> None:
        if trainer.precision == "16-mixed":
            return  # the scaler skips such steps itself
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        is_bad = bool(gradients) and not bool(torch.isfinite(torch.nn.utils.get_total_norm(gradients)))
        if distributed.all_reduce_any(is_bad):
            self._stop(trainer, "a gradient is not finite")

    def _stop(self, trainer: pl.Trainer, problem: str) -> None:
        position = f"epoch {trainer.current_epoch}, step {trainer.global_step}, batch {self._number}"
        fields = ", ".join(_find_not_finite(self._batch))
        inputs = f"Not finite in that batch: {fields}." if fields else "All of that batch's inputs are finite."
        ids = _describe_ids(self._batch)
        raise TrainingError(
            f"{problem} at {position} ({ids}). {inputs} The weights before this step are kept in last.ckpt. "
            "Try a lower optimizer.lr, trainer.gradient_clip_val=1.0, or trainer.precision=32-true."
        )


def _describe_ids(batch: Any) -> str:
    ids = getattr(batch, "ids", None)
    if ids is None or not len(ids):
        return "a batch without ids"
    return f"ids {join_few([repr(str(identifier)) for identifier in ids])}"


def _find_not_finite(batch: Any) -> Iterator[str]:
    fields = batch.to_dict() if hasattr(batch, "to_dict") else vars(batch) if hasattr(batch, "__dict__") else {}
    for name, value in fields.items():
        value = value if isinstance(value, Tensor) else getattr(value, "values", value)  # of sparse features
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all()):
            yield name


class UnusedParameterCheck(pl.Callback):
    """With several processes, refuses parameters that the loss does not depend on, before the first step.

    DDP waits for the gradient of every parameter, and would report the missing ones a step later, by number.
    """

    def __init__(self) -> None:
        self._checked = False

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._checked or trainer.world_size == 1:
            return
        self._checked = True
        names = [n for n, p in pl_module.named_parameters() if p.requires_grad and p.grad is None]
        if names:
            raise ConfigError(
                f"the loss does not depend on {join_few(names)}; with several processes every parameter must be used: "
                f"take it out of the model, or freeze it: optimization.freeze=[{names[0]}]"
            )


class GracefulShutdown(pl.Callback):
    """Stops at Ctrl-C and SIGTERM before the next step, and after a validation that is due, so that nothing is lost.

    A repeated signal within two seconds is the same request; a later one stops the run at once without saving, unless
    it is saving already. If one of several processes receives a signal, all stop. While the best weights are evaluated
    there is nothing to save, and the first signal stops the run at once.
    """

    def __init__(self) -> None:
        self.request = processes.StopRequest()
        self._is_saving = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Lightning has set its own handlers by now, and has stored those that it restores at the end
        for number in processes.STOPPING:
            signal.signal(number, self._ask)

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if is_step_boundary(trainer) and distributed.all_reduce_any(self.request.received is not None):
            sender = self.request.received.name if self.request.received is not None else "another process"
            raise InterruptedRunError(f"stopped by {sender} after step {trainer.global_step}")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._is_saving = True

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self._is_saving = True

    def on_test_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        for number in processes.STOPPING:  # Lightning's handler of SIGTERM would wait for the other processes
            signal.signal(number, processes.raise_interrupted)

    def _ask(self, number: int, _: Any) -> None:
        is_first = self.request.received is None
        if self.request.record(number) and not self._is_saving:
            raise KeyboardInterrupt
        if is_first and number == signal.SIGINT and distributed.is_rank_zero():
            os.write(2, _NOTICE)  # print is not safe in a signal handler
