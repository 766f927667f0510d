"""Factories of attention sites: a net calls one for every site, so that each has parameters of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zoo.attention.attend import Attend
from zoo.attention.dropout import DropWeights
from zoo.attention.ranges import Rate


@dataclass(frozen=True)
class AttendFactory:
    """`(dim, heads) -> Attend`: what a net is given, so that every site has its own parameters.

    Args:
        score, normalise, restrict: Classes or partials; each is given those of `dim` and `heads` that it asks for.
        dropout: Of the weights: a probability, or a class or partial of another kind of dropout.
    """

    score: Callable[..., Any]
    normalise: Callable[..., Any]
    restrict: Callable[..., Any] | None = None
    dropout: Rate | Callable[..., DropWeights] = 0.0

    def __call__(self, dim: int, heads: int) -> Attend:
        sizes = {"dim": dim, "heads": heads}
        return Attend(
            sized(self.score, sizes),
            sized(self.normalise, sizes),
            restrict=None if self.restrict is None else sized(self.restrict, sizes),
            dropout=self.dropout() if callable(self.dropout) else self.dropout,
        )


@dataclass(frozen=True)
class SiteFactory:
    """`(dim, heads) -> site`, for a mechanism that scores, normalises and combines in one.

    Args:
        site: A class or partial; given those of `dim` and `heads` that it asks for.
    """

    site: Callable[..., Any]

    def __call__(self, dim: int, heads: int) -> Any:
        return sized(self.site, {"dim": dim, "heads": heads})


def sized(part: Callable[..., Any], sizes: dict[str, int]) -> Any:
    """Calls a class or partial with those of the sizes that it asks for."""
    asked = inspect.signature(part).parameters
    return part(**{name: size for name, size in sizes.items() if name in asked})
