"""The map that is compared with gold: where it is read, and its agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention import AttentionMap, record
from zoo.errors import ConfigError
from zoo.maps.metrics import pointing
from zoo.tasks.answering.models.coattention import Level

CELLS = "both.first"
"""The map from questions to the cells of pictures: the mean over the levels of the question."""
MapLevel = Level | Literal["mean"]


@dataclass(frozen=True)
class ScoredMap:
    """The map that is scored: that of a site, or the mean of those of a site at several levels of the question.

    Args:
        name: Name of the map; without levels, of its site.
        levels: Levels of the question, such as "word".
    """

    name: str
    levels: tuple[str, ...] = ()

    @property
    def sites(self) -> list[str]:
        """The sites that it is made of."""
        return [site_at_level(self.name, level) for level in self.levels] or [self.name]

    def read(self, maps: Mapping[str, AttentionMap]) -> AttentionMap | None:
        """Returns the map; None if its sites were not recorded, or have no weights."""
        recorded = [maps[site] for site in self.sites if site in maps]
        if not recorded or not all(site_map.has_pairs for site_map in recorded):
            return None
        return replace(
            recorded[0], site=self.name, weights=torch.stack([site_map.weights for site_map in recorded]).mean(0)
        )

    def record(self, net: nn.Module, batch: Any) -> tuple[Any, AttentionMap | None]:
        """Returns what a net gives for a batch, and the map; None if its attention has no weights."""
        with record(net, layers=self.sites) as maps:
            output = net(batch)
        return output, self.read(maps)


def site_at_level(name: str, level: str) -> str:
    """Returns the site at one level of a question: of "both.first" and "word" it is "both.word.first"."""
    return name.replace(".", f".{level}.", 1)


def choose_level(name: str, levels: Sequence[Level], level: MapLevel | None) -> ScoredMap:
    """Returns the map at one level of the question, or the mean over the levels, the default.

    All levels read the picture, and no loss makes each of them look at what is asked for: which one does differs from
    net to net (docs/results/answering.md), so that the mean is the map that can be relied on.

    Args:
        name: Name of the mean.
        levels: The levels of the net.
        level: The level, or "mean"; None: the mean.
    """
    if level is None or level == "mean":
        return ScoredMap(name, tuple(levels))
    if level not in levels:
        raise ConfigError(
            f"model.explain={level}: the net does not attend at this level; write {', '.join([*levels, 'mean'])} or "
            "null"
        )
    return ScoredMap(site_at_level(name, level))


def pointing_hits(scored: AttentionMap, gold: Bool[Tensor, "b q k"]) -> Float[Tensor, " n"]:
    """Returns, for each query with gold, whether its heaviest key is gold."""
    return pointing(scored.dense().mean(1), gold)
