"""Initializes the weights of a new run: at random, from its data, or from a checkpoint."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from zoo import distributed
from zoo.errors import warn
from zoo.plurals import count_noun
from zoo.tasks.contract import Task, TaskData

if TYPE_CHECKING:
    from zoo.checkpoints.finetune import TransferReport


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
