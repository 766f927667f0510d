"""The metrics that a module has logged so far."""

from __future__ import annotations

import pytorch_lightning as pl


def get_logged_metrics(trainer: pl.Trainer) -> dict[str, float]:
    """The metrics that the module has logged, as floats."""
    return {name: float(value) for name, value in trainer.callback_metrics.items()}
