"""Sets up the data and the module of a run, from its configuration; the preflight sets up the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch

from zoo import distributed
from zoo.checkpoints import checkpoint
from zoo.config.instantiate import build
from zoo.errors import count_noun, warn
from zoo.tasks.contract import Task, TaskData
from zoo.training.attention_penalties import add_attention_penalties
from zoo.training.evaluation import check_trainable
from zoo.training.run_config import RunConfig

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
        modules = ", ".join(sorted({_get_module_name(name) for name in untrained}))
        warn(f"{count} of {modules} are random and are never trained, because they are frozen. {module.frozen_remedy}")
    return None


def _find_random_frozen(module: Task) -> dict[str, Any]:
    """Returns the weights that no epoch trains, unless they are constants."""
    frozen = module.optimization.find_frozen(module, math.inf)
    if len(frozen) == len(dict(module.named_parameters())):  # which is refused when the optimizer is made
        return {}
    weights = {name: module.get_parameter(name).detach().clone() for name in frozen}
    return {name: weight for name, weight in weights.items() if weight.numel() > 1 and weight.min() < weight.max()}


def _get_module_name(name: str) -> str:
    return ".".join(name.split(".")[:3])
