"""Callbacks that look after parameters: frozen ones, and those that the loss does not depend on."""

from __future__ import annotations

import pytorch_lightning as pl

from zoo.errors import ConfigError
from zoo.tasks.base import Task


class GradualUnfreezing(pl.Callback):
    """Unfreezes layers at the start of the epoch that `optimization.unfreeze` gives them."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Task)
        if pl_module.optimization.unfreeze:
            pl_module.optimization.apply_freezing(pl_module, trainer.current_epoch)


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
            first_names = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise ConfigError(
                f"the loss does not depend on {first_names}; with several processes every parameter must be used: "
                f"take it out of the model, or freeze it: optimization.freeze=[{names[0]}]"
            )
