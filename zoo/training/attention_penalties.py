"""Penalties on attention: records the weights of a training step in any model, and adds a penalty to its loss."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from zoo import attention, distributed
from zoo.attention import Recording, record, sites
from zoo.errors import ConfigError
from zoo.tasks.base import Task
from zoo.training.run_config import get_active_penalties

if TYPE_CHECKING:
    from zoo.attention import PenaltySum

PENALTIES = {
    "coverage": "Coverage",
    "doubly_stochastic": "DoublyStochastic",
    "locality": "Locality",
    "guidance_squared": "GuidanceSquared",
    "guidance_cross_entropy": "GuidanceCrossEntropy",
    "entropy": "EntropyPenalty",
    "head_disagreement": "HeadSimilarity",
}
"""Option -> class of `zoo.attention`."""
_GUIDANCE = ("guidance_squared", "guidance_cross_entropy")


def add_attention_penalties(module: Task, config: Mapping[str, Any]) -> None:
    """Adds penalties to the training step of a module. Without a penalty whose weight is not 0 it does nothing.

    Args:
        config: The group `penalty`: a weight for each name, and `layers`.

    Raises:
        ConfigError: An option does not fit, or the model has no attention.
    """
    options = get_active_penalties(config)
    if not options:
        return
    layers = options.pop("layers", None)
    factors = {name: _to_number(name, value) for name, value in options.items()}
    option_names = ", ".join(f"penalty.{name}" for name in factors)
    if layers is not None and not isinstance(layers, list | tuple):
        raise ConfigError(f"penalty.layers={layers!r}: write a list of numbers or patterns of names, or null")
    if not sites(module):
        raise ConfigError(f"{option_names}: the model has no attention")
    try:
        with record(module, layers=layers):
            pass
    except ValueError as error:  # the model has no such layers
        raise ConfigError(f"penalty.layers: {error}") from error
    step = module.training_step

    @functools.wraps(step)
    def training_step(batch: Any, batch_idx: int) -> Any:
        with record(module, layers=layers, grad=True) as maps:
            output: Any = step(batch, batch_idx)
        if output is None:  # the module skips this batch
            return None
        penalty = _sum_penalties(module, batch, maps, factors)
        return {**output, "loss": output["loss"] + penalty} if isinstance(output, Mapping) else output + penalty

    module.training_step = training_step  # type: ignore[method-assign]


def _sum_penalties(module: Task, batch: Any, maps: Recording, factors: Mapping[str, float]) -> Tensor:
    """Returns the weighted sum of the penalties, each a mean over the queries of all sites and processes."""
    total = torch.zeros((), device=module.device)
    gold, query_masks = module.gold_attention(batch), module.query_masks(batch)
    for name, factor in factors.items():
        if maps.silent:
            site, reason = next(iter(maps.silent.items()))
            raise ConfigError(f"penalty.{name}: {site} has no weights: {reason}; penalty.layers can leave it out")
        try:
            amounts = _compute_penalty(name, maps, gold, query_masks)
        except ValueError as error:
            raise ConfigError(f"penalty.{name}: {error}; penalty.layers can leave it out") from error
        if not amounts:
            raise ConfigError(f"penalty.{name}: {_explain_missing(name)}")
        sums = torch.stack([amount.total for amount in amounts])
        value = distributed.mean_loss(sums.sum(), sum(amount.count for amount in amounts))
        module.log_training({f"train/penalty_{name}": value.detach()}, 1)
        total = total + factor * value
    return total


def _compute_penalty(
    name: str, maps: Recording, gold: Mapping[str, Tensor], query_masks: Mapping[str, Tensor]
) -> list[PenaltySum]:
    penalty = getattr(attention, PENALTIES[name])()
    if name in _GUIDANCE:
        return [penalty(maps[site], gold[site], query_masks.get(site)) for site in maps if site in gold]
    return [penalty(weights, query_masks.get(site)) for site, weights in maps.items()]


def _explain_missing(name: str) -> str:
    if name in _GUIDANCE:
        return "the data has no gold attention for these layers"
    return "no attention site ran in the training step"


def _to_number(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ConfigError(f"penalty.{name}={value!r}: write a number, 0 for none")
    return float(value)
