"""Sets up the data, the module and the trainer of a run, from its configuration; the preflight sets up the same.

Commands that only evaluate take their trainer from here too.
"""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException

from zoo import distributed
from zoo.checkpoints import checkpoint
from zoo.config.instantiate import build
from zoo.errors import ConfigError, DataError, count_noun, warn
from zoo.memory import disable_malloc_trim
from zoo.optim import GradualUnfreezing
from zoo.tasks.base import Task, TaskData
from zoo.training.callbacks.guards import GracefulShutdown, NanGuard, UnusedParameterCheck
from zoo.training.callbacks.progress import DataWaitTimer, Progress
from zoo.training.run_config import TRIAL, RunConfig, get_active_penalties

if TYPE_CHECKING:
    from zoo.checkpoints.finetune import TransferReport


def setup_data(config: RunConfig, content: Mapping[str, Any] | None = None) -> TaskData:
    """Reads the data of a run, and refuses data without a training example.

    Args:
        config: The run.
        content: The content of the checkpoint that it continues.
    """
    data = read_data(config, content)
    check_trainable(data)
    return data


def read_data(config: RunConfig, content: Mapping[str, Any] | None = None) -> TaskData:
    """Reads the data of a run, with the vocabularies of the checkpoint that it starts from."""
    data: TaskData = build(config.data, "data")
    data.order_seed = config.seed
    if config.init is not None or content is not None:
        from zoo.checkpoints.finetune import reuse_data_state

        reuse_data_state(data, config.init, content)
    distributed.run_on_rank_zero(data.prepare_data)  # one process downloads and writes derived files
    data.setup()
    return data


def check_trainable(data: TaskData) -> None:
    """Refuses data without a training example."""
    if not data.train_size():
        raise DataError(f"no example is left to train on. {data.empty_hint('train')}.")


def seed_generators(config: RunConfig) -> None:
    """Seeds all generators of random numbers, also those of worker processes."""
    pl.seed_everything(config.seed, workers=True, verbose=False)


def set_threads(config: RunConfig, data: TaskData) -> RunConfig:
    """Sets the number of threads, which may depend on the data, and enters it into the configuration."""
    threads = config.threads or data.threads() or torch.get_num_threads()
    torch.set_num_threads(threads)
    return config.replace(threads=threads)


def build_task(config: RunConfig, data: TaskData) -> Task:
    """Builds the module of a run, with random weights."""
    module: Task = build(config.model, "model", **data.sizes())
    module.check_rewards()
    if get_active_penalties(config.penalty):
        from zoo.training.attention_penalties import add_attention_penalties

        add_attention_penalties(module, config.penalty)
    return module


def setup_module(
    config: RunConfig, data: TaskData, content: Mapping[str, Any] | None = None
) -> tuple[Task, TransferReport | None]:
    """Builds the module of a run, with the weights that a new run starts from.

    Args:
        config: The run.
        data: Its data.
        content: The content of the checkpoint that it continues, whose weights Lightning loads.

    Returns:
        The module, and what was kept of `init`.
    """
    module, report = build_task(config, data), None
    if content is not None:
        checkpoint.check_state_dict(module, content["state_dict"], config.resume or "")
    else:
        report = initialize_weights(module, data, config.init)
    if not distributed.is_rank_zero():  # processes have the same weights, and other dropout
        torch.manual_seed(config.seed + 1_000_003 * distributed.rank())
    return module, report


def initialize_weights(module: Task, data: TaskData, init: str | None) -> TransferReport | None:
    """Gives a module the weights of its data, and of `init` if it is given.

    Args:
        module: The module, with random weights.
        data: The data of the run.
        init: A checkpoint, or the name of published weights.

    Returns:
        What was kept of `init`.
    """
    random = {} if init is not None else _find_random_frozen(module)
    module.begin(data)
    if init is not None:
        from zoo.checkpoints.finetune import load_matching_weights, load_source

        return load_matching_weights(module, data.state(), load_source(module, init), init)
    untrained = {name: weight for name, weight in random.items() if module.get_parameter(name).equal(weight)}
    if untrained and distributed.is_rank_zero():
        count = count_noun(sum(weight.numel() for weight in untrained.values()), "weight")
        modules = ", ".join(sorted({".".join(name.split(".")[:3]) for name in untrained}))
        warn(f"{count} of {modules} are random and are never trained, because they are frozen. {module.frozen_remedy}")
    return None


def _find_random_frozen(module: Task) -> dict[str, Any]:
    """Returns the weights that no epoch trains, unless they are constants."""
    frozen = module.optimization.find_frozen(module, math.inf)
    if len(frozen) == len(dict(module.named_parameters())):  # which is refused when the optimizer is made
        return {}
    weights = {name: module.get_parameter(name).detach().clone() for name in frozen}
    return {name: weight for name, weight in weights.items() if weight.numel() > 1 and weight.min() < weight.max()}


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
            *_make_pruning_callbacks(),
            *callbacks,
        ],
        logger=[build(node, f"logger.{name}", run_dir=run_dir) for name, node in nodes],
        plugins=[checkpoint.AtomicCheckpointIO(), *distributed.environment_plugins()],
        default_root_dir=run_dir,
        num_sanity_val_steps=0,
        profiler=_make_profiler(config.trainer.get("profiler"), run_dir),
    )


def _make_pruning_callbacks() -> list[pl.Callback]:
    """Returns the callback of a run that a search has started."""
    if TRIAL not in os.environ:
        return []
    from zoo.training.callbacks.pruning import PruningCallback

    return [PruningCallback()]


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
