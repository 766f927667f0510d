"""Trains one resolved configuration, evaluates the best weights, and writes the results to the run directory."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl

from zoo import distributed
from zoo.checkpoints.checkpoint import make_metadata
from zoo.config import checks
from zoo.data.loader import explain_worker_death
from zoo.errors import InterruptedRunError, warn
from zoo.memory import disable_malloc_trim
from zoo.processes import handle_signals, raise_interrupted
from zoo.tasks.base import Task, TaskData
from zoo.training import launch, loggers, resume, summary
from zoo.training.callbacks.guards import GracefulShutdown
from zoo.training.evaluation import describe_empty_splits, evaluate_and_report
from zoo.training.run_config import RunConfig
from zoo.training.run_dir import RunDir
from zoo.training.run_errors import Phase
from zoo.training.setup import (
    make_run_trainer,
    seed_generators,
    set_threads,
    setup_data,
    setup_module,
    silence_lightning,
)


def train(config: RunConfig) -> dict[str, Any]:
    """Trains, evaluates and reports; returns the content of metrics.json."""
    silence_lightning()
    disable_malloc_trim()
    checks.check(config.tree)
    config = launch.connect(config)
    needs_workers = launch.should_launch(config)
    config, origin = resume.load(config)
    with RunDir.open(config, origin) as run_dir:
        config = config.replace(run_dir=str(run_dir.path))
        if needs_workers:
            return launch.run_workers(config, run_dir)
        seed_generators(config)
        data = setup_data(config, origin.content)
        config = set_threads(config, data)
        module, report = setup_module(config, data, origin.content)
        if report is not None and distributed.is_rank_zero():
            summary.show_fine_tuning(report, config.init or "")
        resume.restore_run_files(config.tree, run_dir.path, origin.content)
        metadata = make_metadata(config.tree, data.state(), data.sizes())
        trainer = make_run_trainer(config, run_dir.path, data.max_epochs, metadata)
        if origin.content is None and not data.is_generated and not distributed.is_launched():
            from zoo.training import preflight

            preflight.check_memory(config, module, data)
        run_dir.write_config(config)
        _fit(config, run_dir, trainer, module, data)
        return _evaluate(config, run_dir, trainer, module, data)


def _fit(config: RunConfig, run_dir: RunDir, trainer: pl.Trainer, module: Task, data: TaskData) -> None:
    for lack in describe_empty_splits(data) if distributed.is_rank_zero() else ():
        warn(lack)
    run_dir.phase = Phase.TRAINING
    with loggers.raise_writer_errors(), explain_worker_death():
        try:
            trainer.fit(module, data, ckpt_path=config.resume, weights_only=True)
        finally:
            for loader in (trainer.train_dataloader, trainer.val_dataloaders):
                if loader is not None:
                    loader.close()


def _evaluate(config: RunConfig, run_dir: RunDir, trainer: pl.Trainer, module: Task, data: TaskData) -> dict[str, Any]:
    run_dir.phase = Phase.EVALUATION
    with explain_worker_death(), handle_signals(raise_interrupted):
        callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
        if any(isinstance(callback, GracefulShutdown) and callback.request.received for callback in callbacks):
            raise InterruptedRunError
        return evaluate_and_report(config, run_dir, trainer, module, data)
