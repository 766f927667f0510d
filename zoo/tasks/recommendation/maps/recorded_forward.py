"""The results of one recorded pass over users.

Attention either does not depend on the candidate (`HistoryPass`), or is computed for each candidate (`CandidatePass`).
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
from zoo.attention.recording.recorder import Recording
from zoo.maps.explainer import LabelledAttention
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.maps.attributions import How, last_rows, split_users
from zoo.tasks.recommendation.maps.distance_table import ByDistance

NOT_RECORDED: AbstractContextManager[None] = nullcontext()
"""Used in place of a second recording of a pass, if there is none."""


@dataclass(frozen=True, eq=False)
class RecordedPass(ABC):
    """A recorded pass over one group of users.

    Args:
        net: The net that made the pass.
        batch: The users.
        user: Representation of the users, from which scores are computed.
        top: The best items of each user, best first, filled up with -1.
        found: Recording of all sites.
        written: Recording of the sites whose maps are written.
    """

    net: nn.Module
    batch: SequenceBatch
    user: Any
    top: Int[Tensor, "b k"]
    found: Recording
    written: Recording | None

    @abstractmethod
    def shares(self, how: How) -> Float[Tensor, " n"]:
        """Returns the share of each position in the prediction of its user's next item, by attention."""

    @abstractmethod
    def weights(self) -> Float[Tensor, "n k"] | None:
        """Returns the share of each position in the attention of each item of `top`; None if all have the same."""

    @abstractmethod
    def maps(self) -> Iterator[LabelledAttention]:
        """Yields the maps of a single user that are written, with the titles of items."""

    @abstractmethod
    def measure(self, distances: ByDistance) -> None:
        """Adds the weights of this pass to the means by distance."""

    @property
    def titles(self) -> list[str]:
        """Titles of the items of the history."""
        return [self.batch.catalogue.title_of(item) for item in self.batch.items.tolist()]

    @property
    def recommended_titles(self) -> list[str]:
        """Titles of the best items of a single user."""
        return [self.batch.catalogue.title_of(item) for item in self.top[0].tolist() if item >= 0]


class HistoryPass(RecordedPass):
    """A pass in which each position attends to earlier ones, independently of any candidate."""

    def shares(self, how: How) -> Float[Tensor, " n"]:
        return last_rows(self.net, split_users(self.found, self.batch), how)

    def weights(self) -> None:
        return None

    def maps(self) -> Iterator[LabelledAttention]:
        ends = ("query", "key")
        for each in _values(self.written):
            yield LabelledAttention(each, dict.fromkeys(ends, self.titles), dict.fromkeys(ends, "item"))

    def measure(self, distances: ByDistance) -> None:
        found = split_users(self.found, self.batch)
        for site, weights in found.maps.items():
            distances.add(site, weights, found.real)


class CandidatePass(RecordedPass):
    """A pass in which candidates attend to their user's history: the items of `top`, then the one of the scored map."""

    def shares(self, how: How) -> Float[Tensor, " n"]:
        return self._all()[:, -1]

    def weights(self) -> Float[Tensor, "n k"]:
        return self._all()[:, :-1]

    def maps(self) -> Iterator[LabelledAttention]:
        titles = {"source": self.titles, "target": self.recommended_titles}
        for each in _values(self.written):
            yield LabelledAttention(
                _select_first(each, len(self.recommended_titles)), titles, dict.fromkeys(titles, "item")
            )

    def measure(self, distances: ByDistance) -> None:
        distances.add_last(next(iter(self.found)), self.weights()[:, 0], self.batch)

    def _all(self) -> Float[Tensor, "n k"]:
        return candidate_shares(self.found, self.batch, self.top.shape[1] + 1)


def candidate_shares(found: Mapping[str, AttentionMap], batch: SequenceBatch, count: int) -> Float[Tensor, "n k"]:
    """Returns the share of each position in the attention of each of its user's `count` candidates.

    Shares are of absolute values: weights that are not normalised may be negative, and the MLP after the attention may
    reverse their sign.
    """
    (one,) = found.values()
    weights = one.weights.new_zeros(len(batch.items), count)
    support: Any = one.support
    weights[support.source.long(), support.target.long() % count] = one.weights[:, 0].abs()
    total = weights.new_zeros(len(batch), count).index_add(0, batch.users, weights)
    return weights / total.masked_fill(total == 0.0, 1.0)[batch.users]


def _select_first(found: AttentionMap, count: int) -> AttentionMap:
    """Returns the map of the first `count` candidates of a single user."""
    support: Any = found.support
    kept = support.target < count
    ends = torch.stack([support.source[kept], support.target[kept]])
    fewer = EdgeSupport.from_edges(ends, count, support.pattern.shape[1])
    return replace(found, weights=found.weights[kept][fewer.order], support=fewer)


def _values(found: Recording | None) -> Iterator[AttentionMap]:
    yield from () if found is None else found.values()
