"""Factories of attention sites: a network calls one for every site, so that each site has its own parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zoo.attention.attention import Attention
from zoo.attention.dropout import DropWeights
from zoo.types import Probability, validate_ranges


@validate_ranges
@dataclass(frozen=True)
class AttentionFactory:
    """Makes an `Attention` for each site of a network: `(dim, heads) -> Attention`.

    Args:
        score, normalizer, restrict: Classes or partials; called with `dim` and `heads`, if their signature has them.
        dropout: Dropout of the weights: a probability, or a class or partial of a `DropWeights`.
    """

    score: Callable[..., Any]
    normalizer: Callable[..., Any]
    restrict: Callable[..., Any] | None = None
    dropout: Probability | Callable[..., DropWeights] = 0.0

    def __call__(self, dim: int, heads: int) -> Attention:
        sizes = {"dim": dim, "heads": heads}
        return Attention(
            make_sized(self.score, sizes),
            make_sized(self.normalizer, sizes),
            restrict=None if self.restrict is None else make_sized(self.restrict, sizes),
            dropout=self.dropout() if callable(self.dropout) else self.dropout,
        )


@dataclass(frozen=True)
class MechanismFactory:
    """Makes a mechanism that replaces `Attention` as a whole for each site: `(dim, heads) -> site`.

    Args:
        site: Class or partial; called with `dim` and `heads`, if its signature has them.
    """

    site: Callable[..., Any]

    def __call__(self, dim: int, heads: int) -> Any:
        return make_sized(self.site, {"dim": dim, "heads": heads})


def make_sized(part: Callable[..., Any], sizes: dict[str, int]) -> Any:
    """Calls a class or partial with those sizes that its signature has."""
    parameters = inspect.signature(part).parameters
    return part(**{name: size for name, size in sizes.items() if name in parameters})
