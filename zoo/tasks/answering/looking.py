"""Where a net looked: the weights that are compared with gold, and their agreement."""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention import AttentionMap, record
from zoo.errors import ConfigError
from zoo.maps.score import pointing
from zoo.tasks.answering.batch import Questions
from zoo.tasks.captioning.batch import cells_of

SCORED = {"picture": "both.first", "passage": "flow.first", "premise": "both.second"}
"""The site that is scored: cells of a picture; words of the question for each word of a passage; words of the premise
for each word of a hypothesis."""


def looked(net: nn.Module, batch: Questions, about: str) -> tuple[Any, AttentionMap | None]:
    """Returns what a net gives for a batch, and the map that is scored; None if its attention has no weights."""
    site = SCORED[about]
    with record(net, layers=[site]) as maps:
        given = net(batch)
    return given, maps[site] if site in maps and maps[site].has_pairs else None


def explained(net: nn.Module, batch: Questions, about: str) -> AttentionMap:
    """Returns the map that is scored."""
    found = looked(net, batch, about)[1]
    if found is None:
        raise ConfigError("this model has no map of what it looked at: its attention has no weights")
    return found


def gold_of(batch: Questions, about: str, grid: tuple[int, int] | None) -> Bool[Tensor, "b q k"] | None:
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


def pointed(looked: AttentionMap, gold: Bool[Tensor, "b q k"]) -> Float[Tensor, " n"]:
    """Returns, for each query with gold, whether its heaviest key is gold."""
    return pointing(looked.dense().mean(1), gold)
