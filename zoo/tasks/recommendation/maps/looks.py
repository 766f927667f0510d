"""The results of one recorded pass over users.

A net looks at a history before it has any item in mind (`HistoryLook`), or for each candidate anew (`CandidateLook`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention import AttentionMap, EdgeSupport
from zoo.attention.observing.record import Recording
from zoo.maps.source import NamedMap
from zoo.tasks.recommendation.batch import Histories
from zoo.tasks.recommendation.maps.scored import How, attended, last_rows
from zoo.tasks.recommendation.maps.tables import ByDistance

UNASKED: AbstractContextManager[None] = nullcontext()
"""In place of a second recording of a pass."""


@dataclass(frozen=True, eq=False)
class Look(ABC):
    """A pass over users side by side.

    Args:
        net: Whose pass it was.
        batch: The users.
        user: What scores are computed from.
        top: The best items of each, best first, as many as were asked for; -1 where no more are left.
        found: What was recorded, of all sites.
        written: A second recording of the same pass, of the sites whose maps are written.
    """

    net: nn.Module
    batch: Histories
    user: Any
    top: Int[Tensor, "b k"]
    found: Recording
    written: Recording | None

    @abstractmethod
    def shares(self, how: How) -> Float[Tensor, " n"]:
        """Of each position, its share in what comes next for its user, by attention."""

    @abstractmethod
    def weights(self) -> Float[Tensor, "n k"] | None:
        """Of each position, its share in the attention of each item of `top`; None where all have the same."""

    @abstractmethod
    def maps(self) -> Iterator[NamedMap]:
        """The maps of a single user that are written, with the titles of items."""

    @abstractmethod
    def measure(self, distances: ByDistance) -> None:
        """Adds how far back the net looked."""

    @property
    def titles(self) -> list[str]:
        """Of the history."""
        return [self.batch.catalogue.shown(item) for item in self.batch.items.tolist()]

    @property
    def recommended(self) -> list[str]:
        """The titles of a single user's best items."""
        return [self.batch.catalogue.shown(item) for item in self.top[0].tolist() if item >= 0]


class HistoryLook(Look):
    """Every position looks at those before it; what is recommended has no part in that."""

    def shares(self, how: How) -> Float[Tensor, " n"]:
        return last_rows(self.net, attended(self.found, self.batch), how)

    def weights(self) -> None:
        return None

    def maps(self) -> Iterator[NamedMap]:
        ends = ("query", "key")
        for each in _values(self.written):
            yield NamedMap(each, dict.fromkeys(ends, self.titles), dict.fromkeys(ends, "item"))

    def measure(self, distances: ByDistance) -> None:
        found = attended(self.found, self.batch)
        for site, weights in found.maps.items():
            distances.add(site, weights, found.real)


class CandidateLook(Look):
    """The candidates of each user look at its history: those of `top`, and last the one that is scored."""

    def shares(self, how: How) -> Float[Tensor, " n"]:
        return self._all()[:, -1]

    def weights(self) -> Float[Tensor, "n k"]:
        return self._all()[:, :-1]

    def maps(self) -> Iterator[NamedMap]:
        titles = {"source": self.titles, "target": self.recommended}
        for each in _values(self.written):
            yield NamedMap(_of_first(each, len(self.recommended)), titles, dict.fromkeys(titles, "item"))

    def measure(self, distances: ByDistance) -> None:
        distances.add_last(next(iter(self.found)), self.weights()[:, 0], self.batch)

    def _all(self) -> Float[Tensor, "n k"]:
        return candidate_shares(self.found, self.batch, self.top.shape[1] + 1)


def candidate_shares(found: Mapping[str, AttentionMap], batch: Histories, count: int) -> Float[Tensor, "n k"]:
    """Of each position, its share in the attention of each candidate of its user, so many of whom were recorded.

    Weights that are not normalised may be negative, and their sign means nothing: the MLP behind may turn it round.
    Shares are of their absolute values.
    """
    (one,) = found.values()
    weights = one.weights.new_zeros(len(batch.items), count)
    support: Any = one.support
    weights[support.source.long(), support.target.long() % count] = one.weights[:, 0].abs()
    total = weights.new_zeros(len(batch), count).index_add(0, batch.users, weights)
    return weights / total.masked_fill(total == 0.0, 1.0)[batch.users]


def _of_first(found: AttentionMap, count: int) -> AttentionMap:
    """The map of a single user's first candidates alone."""
    support: Any = found.support
    kept = support.target < count
    ends = torch.stack([support.source[kept], support.target[kept]])
    fewer = EdgeSupport.from_edges(ends, count, support.pattern.shape[1])
    return replace(found, weights=found.weights[kept][fewer.order], support=fewer)


def _values(found: Recording | None) -> Iterator[AttentionMap]:
    yield from () if found is None else found.values()
