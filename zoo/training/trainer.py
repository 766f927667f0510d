"""Builds Lightning's trainers: that of a run, and those that only evaluate."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException

from zoo import distributed
from zoo.checkpoints import checkpoint
from zoo.config.instantiate import build
from zoo.errors import ConfigError
from zoo.memory import disable_malloc_trim
from zoo.training.callbacks.data_wait import DataWaitTimer
from zoo.training.callbacks.guards import GracefulShutdown, NanGuard
from zoo.training.callbacks.parameters import GradualUnfreezing, UnusedParameterCheck
from zoo.training.callbacks.progress import Progress
from zoo.training.callbacks.pruning import make_pruning_callbacks
from zoo.training.run_config import RunConfig


def make_run_trainer(config: RunConfig, run_dir: Path, max_epochs: int, metadata: Mapping[str, Any]) -> pl.Trainer:
    """Makes the trainer of a run, with its callbacks and loggers.

    Args:
        config: The run.
        run_dir: Its directory.
        max_epochs: How long it trains.
        metadata: The section `zoo` of its checkpoints.
    """
    callbacks = [
        build(node, f"callbacks.{name}", **({"run_dir": run_dir, "metadata": metadata} if _keeps(node) else {}))
        for name, node in config.callbacks.items()
    ]
    is_first = distributed.is_rank_zero()
    nodes = config.loggers.items() if is_first else ()
    return make_trainer(
        config.trainer,
        max_epochs=max_epochs,
        # CheckpointAndStop is the last to be told of an exception: the others have then done their part
        callbacks=[
            NanGuard(),
            GracefulShutdown(),
            *([GradualUnfreezing()] if config.tree["optimization"].get("unfreeze") else []),
            *([UnusedParameterCheck()] if distributed.world_size() > 1 else []),
            DataWaitTimer(),
            *([Progress()] if is_first else []),
            *make_pruning_callbacks(),
            *callbacks,
        ],
        logger=[build(node, f"logger.{name}", run_dir=run_dir) for name, node in nodes],
        plugins=[checkpoint.AtomicCheckpointIO(), *distributed.environment_plugins()],
        default_root_dir=run_dir,
        num_sanity_val_steps=0,
        profiler=_make_profiler(config.trainer.get("profiler"), run_dir),
    )


def make_evaluation_trainer(config: RunConfig, trainer: pl.Trainer) -> pl.Trainer:
    """Makes the trainer that evaluates the best weights of a run whose own trainer has sharded its module."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    return make_trainer(
        {**config.trainer, "strategy": "ddp", "max_time": None},
        plugins=distributed.environment_plugins(),
        callbacks=[callback for callback in callbacks if isinstance(callback, GracefulShutdown)],
        logger=False,
    )


def make_command_trainer(*callbacks: pl.Callback) -> pl.Trainer:
    """Makes the trainer of a command that only evaluates, on a GPU if there is one."""
    silence_lightning()
    disable_malloc_trim()
    return make_trainer({"accelerator": "auto", "devices": 1}, callbacks=list(callbacks), logger=False)


def make_trainer(options: Mapping[str, Any], **more: Any) -> pl.Trainer:
    """Makes a trainer; refuses a precision that Lightning would replace.

    Args:
        options: Those of the group `trainer`.
        more: Other arguments of Lightning's trainer.
    """
    options = {name: value for name, value in options.items() if name != "max_restarts"}
    silent = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*AMP with fp16 is not supported on CPU.*")
            trainer = pl.Trainer(**{**options, **silent, **more})
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise ConfigError(f"trainer: {error}") from error
    if str(options.get("precision")) in ("16", "16-mixed") and trainer.precision != "16-mixed":
        raise ConfigError(
            "trainer.precision=16-mixed needs a GPU, and this run is on the CPU: give trainer.precision=bf16-mixed, or "
            "32-true"
        )
    return trainer


def _make_profiler(name: str | None, run_dir: Path) -> pl.profilers.Profiler | None:
    """Makes the profiler of `debug=profiler`. Lightning's own choice by name would write to a log that is not shown."""
    kinds = {"simple": pl.profilers.SimpleProfiler, "advanced": pl.profilers.AdvancedProfiler}
    return None if name is None else kinds[name](dirpath=run_dir, filename="profile")


def _keeps(node: Mapping[str, Any]) -> bool:
    return bool(node["_target_"] == "zoo.training.CheckpointAndStop")


def silence_lightning() -> None:
    """Silences remarks of Lightning that do not apply here."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    torch.set_float32_matmul_precision("high")
    remarks = (
        *("does not have many workers", "GPU available but not used", "LeafSpec", "than the logging interval"),
        "in eval mode at the start of training",  # as frozen parts are
    )
    truth_remark = r"self\.log\(.truth/"  # of the whole graph in every process
    for remark in (*remarks, truth_remark):
        warnings.filterwarnings("ignore", f".*{remark}.*")
