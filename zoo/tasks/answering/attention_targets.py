"""Where a net looked: the weights that are compared with gold, and their agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention import AttentionMap, record
from zoo.errors import ConfigError
from zoo.maps.metrics import pointing
from zoo.nn.images.image_input import cells_of
from zoo.tasks.answering.batch import QABatch
from zoo.tasks.answering.models.coattention import Level

SCORED = {"picture": "both.first", "passage": "flow.first", "premise": "both.second"}
"""The map that is scored: cells of a picture, at a level of the question or as the mean over the levels; words of the
question for each word of a passage; words of the premise for each word of a hypothesis."""
MapLevel = Level | Literal["mean"]


def looked(net: nn.Module, batch: QABatch, about: str, level: Level | None = None) -> tuple[Any, AttentionMap | None]:
    """Returns what a net gives for a batch, and the map that is scored; None if its attention has no weights.

    Args:
        level: The level of the question whose map is scored. Default: the mean over the levels, if the net has any.
    """
    name = scored_site(about, level)
    levels = getattr(net, "levels", ()) if level is None else ()
    with record(net, layers=[at_level(name, level) for level in levels] or [name]) as maps:
        given = net(batch)
    return given, mean_of_levels(name, maps, levels)


def at_level(name: str, level: str) -> str:
    """Returns the site at one level of a question: of "both.first" and "word" it is "both.word.first"."""
    return name.replace(".", f".{level}.", 1)


def scored_site(about: str, level: Level | None) -> str:
    """Returns the name of the map that is scored."""
    return SCORED[about] if level is None else at_level(SCORED[about], level)


def level_of(net: nn.Module, explain: MapLevel | None) -> Level | None:
    """Returns the level of the question whose map is scored; None for the mean over the levels, the default.

    All levels read the picture, and no loss makes each of them look at what is asked for: which one does differs from
    net to net (docs/answering.md), so that the mean is the map that can be relied on.

    Args:
        net: The net.
        explain: The level, or "mean"; None: the mean.
    """
    levels: Sequence[Level] = getattr(net, "levels", ())
    if explain is None or explain == "mean":
        return None
    if explain not in levels:
        raise ConfigError(
            f"model.explain={explain}: the net does not attend at this level; write {', '.join([*levels, 'mean'])} or "
            "null"
        )
    return explain


def mean_of_levels(name: str, maps: Mapping[str, AttentionMap], levels: Sequence[str]) -> AttentionMap | None:
    """Returns the mean of the maps of all levels; the map of this name where there are none; None without weights."""
    found = [maps[site] for site in [at_level(name, level) for level in levels] or [name] if site in maps]
    if not found or not all(each.has_pairs for each in found):
        return None
    return replace(found[0], site=name, weights=torch.stack([each.weights for each in found]).mean(0))


def explained(net: nn.Module, batch: QABatch, about: str, level: Level | None = None) -> AttentionMap:
    """Returns the map that is scored; see `looked`."""
    found = looked(net, batch, about, level)[1]
    if found is None:
        raise ConfigError("this model has no map of what it looked at: its attention has no weights")
    return found


def gold_of(batch: QABatch, about: str, grid: tuple[int, int] | None) -> Bool[Tensor, "b q k"] | None:
    """Returns the gold of the map that is scored; None if it is not known.

    Args:
        grid: Rows and columns of the cells of a picture.
    """
    if about == "picture":
        if batch.regions is None or grid is None:
            return None
        return cells_of(batch.regions, grid).any(1, keepdim=True)
    if batch.gold is None:
        return None
    return batch.gold if about == "premise" else batch.gold.mT


def pointing_hits(looked: AttentionMap, gold: Bool[Tensor, "b q k"]) -> Float[Tensor, " n"]:
    """Returns, for each query with gold, whether its heaviest key is gold."""
    return pointing(looked.dense().mean(1), gold)
