"""Builds Lightning's trainers: that of a run, and those that only evaluate."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException

from zoo import distributed
from zoo.checkpoints import checkpoint
from zoo.config.instantiate import build
from zoo.cpu_memory import disable_malloc_trim
from zoo.errors import ConfigError
from zoo.training.callbacks.data_wait import DataWaitTimer
from zoo.training.callbacks.guards import GracefulShutdown, NanGuard
from zoo.training.callbacks.progress import Progress
from zoo.training.callbacks.pruning import make_pruning_callbacks
from zoo.training.callbacks.unfreezing import GradualUnfreezing
from zoo.training.callbacks.unused_parameters import UnusedParameterCheck

T = TypeVar("T")


def run_trainer(config: Mapping[str, Any], run_dir: Path, max_epochs: int, metadata: Mapping[str, Any]) -> pl.Trainer:
    callbacks = [
        build(node, f"callbacks.{name}", **({"run_dir": run_dir, "metadata": metadata} if _keeps(node) else {}))
        for name, node in config["callbacks"].items()
    ]
    logged = config["logger"].items() if distributed.is_rank_zero() else ()
    loggers = [build(node, f"logger.{name}", run_dir=run_dir) for name, node in logged]
    shown = [Progress()] if distributed.is_rank_zero() else []
    return make_trainer(
        config,
        max_epochs=max_epochs,
        # CheckpointAndStop is the last to be told of an exception: the others have then done their part
        callbacks=[
            NanGuard(),
            GracefulShutdown(),
            GradualUnfreezing(),
            UnusedParameterCheck(),
            DataWaitTimer(),
            *shown,
            *make_pruning_callbacks(),
            *callbacks,
        ],
        logger=loggers,
        plugins=[checkpoint.AtomicCheckpointIO(), *distributed.environment_plugins()],
        default_root_dir=run_dir,
        num_sanity_val_steps=0,
        profiler=_make_profiler(config["trainer"].get("profiler"), run_dir),
    )


def _make_profiler(name: str | None, run_dir: Path) -> pl.profilers.Profiler | None:
    """Makes the profiler of `debug=profiler`. Lightning's own choice by name would write to a log that is not shown."""
    kinds = {"simple": pl.profilers.SimpleProfiler, "advanced": pl.profilers.AdvancedProfiler}
    return None if name is None else kinds[name](dirpath=run_dir, filename="profile")


def make_trainer(config: Mapping[str, Any], **options: Any) -> pl.Trainer:
    """Makes a trainer of the group `trainer` and further options; refuses a precision that Lightning would replace."""
    quietly = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*AMP with fp16 is not supported on CPU.*")
            trainer = pl.Trainer(**{**trainer_options(config), **quietly, **options})
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise ConfigError(f"trainer: {error}") from error
    if str(config["trainer"]["precision"]) in ("16", "16-mixed") and trainer.precision != "16-mixed":
        raise ConfigError(
            "trainer.precision=16-mixed needs a GPU, and this run is on the CPU: give trainer.precision=bf16-mixed, or "
            "32-true"
        )
    return trainer


def _keeps(node: Mapping[str, Any]) -> bool:
    return bool(node["_target_"] == "zoo.training.CheckpointAndStop")


def trainer_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the group `trainer` that Lightning takes."""
    return {name: value for name, value in config["trainer"].items() if name != "max_restarts"}


def replace_sharded(trainer: pl.Trainer, config: Mapping[str, Any], module: T, again: Callable[[], T]) -> tuple[Any, T]:
    """The trainer and module that evaluate the best weights: new ones after FSDP, where a process has but a part."""
    if config["trainer"].get("strategy") != "fsdp":
        return trainer, module
    evaluating = pl.Trainer(
        **{**trainer_options(config), "strategy": "ddp", "max_time": None},
        plugins=distributed.environment_plugins(),
        callbacks=[each for each in trainer.callbacks if isinstance(each, GracefulShutdown)],  # type: ignore[attr-defined]
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    return evaluating, again()


def evaluation_trainer(*callbacks: pl.Callback) -> pl.Trainer:
    """A trainer that only evaluates, on a GPU if there is one."""
    silence_lightning()
    disable_malloc_trim()
    return pl.Trainer(
        accelerator="auto",
        devices=1,
        logger=False,
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )


def silence_lightning() -> None:
    """Silences remarks of Lightning that do not apply here."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    torch.set_float32_matmul_precision("high")
    remarks = (
        *("does not have many workers", "GPU available but not used", "LeafSpec", "than the logging interval"),
        "in eval mode at the start of training",  # as frozen parts are
    )
    by_all = r"self\.log\(.truth/"  # of the whole graph in every process
    for remark in (*remarks, by_all):
        warnings.filterwarnings("ignore", f".*{remark}.*")
