"""Reports a run's metric to the search that started it, and stops the run if the search's pruner says so."""

from __future__ import annotations

import json
import os
from typing import Any

import pytorch_lightning as pl

from zoo import distributed
from zoo.training.loggers import get_logged_metrics
from zoo.training.run_config import TRIAL


def open_study(journal: str, pruner: str, direction: str) -> Any:
    """Opens the search that a journal file holds, or begins it."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(journal)),
        study_name="search",
        direction=direction,
        pruner=optuna.pruners.NopPruner() if pruner == "none" else optuna.pruners.MedianPruner(4, 10),
        load_if_exists=True,
    )


class PruningCallback(pl.Callback):
    """Reports the metric after every validation, and asks the pruner whether to stop."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = json.loads(os.environ[TRIAL])
        self._trial: Any = None

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        if distributed.broadcast_object(self._is_hopeless(trainer) if distributed.is_rank_zero() else False):
            trainer.should_stop = True

    def _is_hopeless(self, trainer: pl.Trainer) -> bool:
        value = get_logged_metrics(trainer).get(self._settings["metric"])
        if value is None:
            return False
        if self._trial is None:
            from optuna.trial import Trial

            study = open_study(self._settings["journal"], self._settings["pruner"], self._settings["direction"])
            self._trial = Trial(study, study.get_trials(deepcopy=False)[self._settings["trial"]]._trial_id)
        trials = self._trial.study.get_trials(deepcopy=False)
        if trainer.current_epoch not in trials[self._settings["trial"]].intermediate_values:
            self._trial.report(value, trainer.current_epoch)  # a resumed run repeats some
        return bool(self._trial.should_prune())
