"""Measures how long a run waits for its data."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from zoo.data.loader import Loader


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
