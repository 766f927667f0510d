"""Unfreezes layers during training."""

from __future__ import annotations

import pytorch_lightning as pl

from zoo.tasks.contract import Task


class GradualUnfreezing(pl.Callback):
    """Unfreezes layers at the start of the epoch that `optimisation.unfreeze` gives them."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Task)
        if pl_module.optimisation.unfreeze:
            pl_module.optimisation.apply_freezing(pl_module, trainer.current_epoch)
