"""Reports a run's metric to the search that started it, and stops the run if the search says so."""

from __future__ import annotations

import json
import os
from multiprocessing.connection import Client, Connection
from typing import Any

import pytorch_lightning as pl

from zoo import distributed
from zoo.training.loggers import get_logged_metrics

TRIAL = "ZOO_TRIAL"
"""The environment variable with the search's port, key and metric, as JSON."""


class PruningCallback(pl.Callback):
    """Reports the metric after every validation; the search answers whether to stop."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._told = told
        self._line: Connection | None = None
        self._is_alone = False

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        if distributed.broadcast_object(self._is_hopeless(trainer) if distributed.is_rank_zero() else False):
            trainer.should_stop = True

    def _is_hopeless(self, trainer: pl.Trainer) -> bool:
        value = get_logged_metrics(trainer).get(self._told["metric"])
        if value is None or self._is_alone:
            return False
        try:
            if self._line is None:
                self._line = Client(("127.0.0.1", self._told["port"]), authkey=bytes.fromhex(self._told["key"]))
            self._line.send((trainer.current_epoch, value))
            return bool(self._line.recv())
        except (
            EOFError,
            OSError,
        ):  # the search was killed; a new one reads the run's metrics.json
            self._is_alone = True
            return False


def make_pruning_callbacks() -> list[PruningCallback]:
    """Returns a PruningCallback if a search started this run."""
    return [PruningCallback(json.loads(os.environ[TRIAL]))] if TRIAL in os.environ else []
