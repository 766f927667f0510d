"""Drawing items: those that a user has not chosen, and those of a distribution over the catalogue.

The unchosen items of a user with seen items s_0 < s_1 < ... are numbered 0, 1, ... by size. The r-th of them is
r + j, where j counts the seen items with s_j - j <= r: a binary search, of all users at once if the numbers of each
have a range of their own. No draw can collide, and none is repeated.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.errors import DataError
from zoo.tasks.ranges import owners
from zoo.tasks.recommendation.batch import Histories

Shape = Literal["uniform", "log_uniform", "popularity"]


class Unseen:
    """The items that each user of a batch has not seen.

    Args:
        seen: Each user's distinct items, sorted, user after user.
        lengths: How many each user has.
        items: Of the catalogue; those from there on are drawn for nobody.
    """

    def __init__(self, seen: Int[Tensor, " s"], lengths: Int[Tensor, " b"], items: int) -> None:
        self.items = items
        self.left: Int[Tensor, " b"] = items - lengths
        """How many unseen items each user has."""
        users = owners(lengths, len(seen))
        self._starts = lengths.cumsum(0) - lengths
        places = torch.arange(len(seen), device=seen.device) - self._starts[users]
        self._seen = users * items + seen
        self._before = users * (items + 1) + seen - places  # how many unseen ones are smaller, 0 to `items` inclusive

    @classmethod
    def of(cls, batch: Histories) -> Unseen:
        """What the users of a batch have not chosen; the row of unknown items is drawn for nobody."""
        seen, lengths, items = batch.seen, batch.seen_lengths, len(batch.catalogue)
        if batch.catalogue.unknown is None:
            return cls(seen, lengths, items)
        known = seen != batch.catalogue.unknown
        return cls(seen[known], torch.zeros_like(lengths).index_add_(0, batch.seen_users, known.long()), items - 1)

    def at(self, users: Int[Tensor, "..."], places: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """The unseen item of a user that has so many unseen ones before it."""
        found = torch.searchsorted(self._before, users * (self.items + 1) + places, right=True)
        return places + found - self._starts[users]

    def draw(self, users: Int[Tensor, " n"], count: int) -> Int[Tensor, "n count"]:
        """So many for each of `users`, uniformly and with replacement, by torch's global generator of the device."""
        self.refuse_none()
        numbers = torch.randint(2**62, (len(users), count), device=users.device)  # so large that % is uniform to 2^-40
        return self.at(users[:, None], numbers % self.left[users, None])

    def refuse_none(self) -> None:
        """An error if somebody has nothing unseen."""
        if len(self.left) and int(self.left.min()) < 1:
            raise DataError(
                f"user {int(self.left.argmin())} of a batch has chosen all {self.items:,} items, so that there is no "
                "negative to draw; leave such users out (fewer items for each, or more items), train with "
                "losses.FullSoftmax and rank the whole catalogue, neither of which draws any"
            )

    def has_seen(self, users: Int[Tensor, "..."], items: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        """Whether a user has seen an item."""
        wanted = users * self.items + items
        if not len(self._seen):
            return torch.zeros_like(wanted, dtype=torch.bool)
        found = torch.searchsorted(self._seen, wanted).clamp(max=len(self._seen) - 1)
        return self._seen[found] == wanted


class Distribution:
    """Items by a probability of each, drawn with replacement by torch's global generator of the device.

    Args:
        counts: How often each item was chosen in training.
        shape: "uniform"; "popularity", by count + 1, so that every item can be drawn; "log_uniform", by
            log((r + 2) / (r + 1)) of the item with r more popular ones, of equal counts the first first.
    """

    def __init__(self, counts: Int[Tensor, " i"], shape: Shape) -> None:
        weights = torch.ones(len(counts), dtype=torch.float64, device=counts.device)
        if shape == "popularity":
            weights += counts
        if shape == "log_uniform":
            ranks = counts.argsort(descending=True, stable=True).argsort().double()
            weights = ((ranks + 2) / (ranks + 1)).log()
        self._sums = weights.cumsum(0)
        self.log_p: Float[Tensor, " i"] = (weights / self._sums[-1]).log().float()

    def draw(self, count: int) -> Int[Tensor, " count"]:
        numbers = torch.rand(count, dtype=torch.float64, device=self._sums.device) * self._sums[-1]
        return torch.searchsorted(self._sums, numbers, right=True).clamp(max=len(self._sums) - 1)

    def log_expected(self, items: Int[Tensor, " k"]) -> Float[Tensor, " k"]:
        """log(k q): how often each of these is expected among as many draws."""
        return self.log_p[items] + math.log(max(1, len(items)))
