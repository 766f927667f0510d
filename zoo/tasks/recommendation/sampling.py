"""Sampling of items: from the items that a user has not chosen, or from a distribution over the catalogue.

The unchosen items of a user with seen items s_0 < s_1 < ... are numbered 0, 1, ... in ascending order. Number r is the
item r + j, where j is the number of seen items with s_j - j <= r. One binary search finds it for all users, since each
user's numbers have a range of their own. No draw is rejected or repeated.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.errors import DataError
from zoo.nn.segments import owners
from zoo.tasks.recommendation.batch import SequenceBatch

Shape = Literal["uniform", "log_uniform", "popularity"]


class NegativeSampler:
    """The items that each user of a batch has not seen.

    Args:
        seen: Distinct items of each user, sorted, user after user.
        lengths: Number of entries of `seen` of each user.
        items: Number of items that can be drawn; items with this number or a higher one are never drawn.
    """

    def __init__(self, seen: Int[Tensor, " s"], lengths: Int[Tensor, " b"], items: int) -> None:
        self.items = items
        self.left: Int[Tensor, " b"] = items - lengths
        """Number of unseen items of each user."""
        users = owners(lengths, len(seen))
        self._starts = lengths.cumsum(0) - lengths
        index = torch.arange(len(seen), device=seen.device) - self._starts[users]
        self._seen = users * items + seen
        self._before = users * (items + 1) + seen - index  # number of smaller unseen items, 0 to `items` inclusive

    @classmethod
    def from_batch(cls, batch: SequenceBatch) -> NegativeSampler:
        """Returns the items that the users of a batch have not chosen, without the row of unknown items."""
        seen, lengths, items = batch.seen, batch.seen_lengths, len(batch.catalogue)
        if batch.catalogue.unknown is None:
            return cls(seen, lengths, items)
        known = seen != batch.catalogue.unknown
        return cls(seen[known], torch.zeros_like(lengths).index_add_(0, batch.seen_users, known.long()), items - 1)

    def select(self, users: Int[Tensor, "..."], numbers: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """Returns the unseen items of users by their numbers, counted from 0 in ascending order."""
        found = torch.searchsorted(self._before, users * (self.items + 1) + numbers, right=True)
        return numbers + found - self._starts[users]

    def draw(self, users: Int[Tensor, " n"], count: int) -> Int[Tensor, "n count"]:
        """Draws `count` items for each of `users`, uniformly and with replacement, by the device's global generator."""
        self.refuse_none()
        numbers = torch.randint(2**62, (len(users), count), device=users.device)  # so large that % is uniform to 2^-40
        return self.select(users[:, None], numbers % self.left[users, None])

    def refuse_none(self) -> None:
        """Raises a DataError if a user has seen all items."""
        if len(self.left) and int(self.left.min()) < 1:
            raise DataError(
                f"user {int(self.left.argmin())} of a batch has chosen all {self.items:,} items, so that there is no "
                "negative to draw; leave such users out, or train with loss=softmax and rank all items "
                "(model.protocol.negatives=null), which needs no negatives"
            )

    def has_seen(self, users: Int[Tensor, "..."], items: Int[Tensor, "..."]) -> Bool[Tensor, "..."]:
        """Returns whether each user has seen each item."""
        wanted = users * self.items + items
        if not len(self._seen):
            return torch.zeros_like(wanted, dtype=torch.bool)
        found = torch.searchsorted(self._seen, wanted).clamp(max=len(self._seen) - 1)
        return self._seen[found] == wanted


class Distribution:
    """A distribution over items, sampled with replacement by torch's global generator of the device.

    Args:
        counts: Number of times that each item was chosen in training.
        shape: Probability of an item: "uniform"; "popularity", proportional to its count + 1, so that every item can
            be drawn; "log_uniform", proportional to log((r + 2) / (r + 1)), where r is its rank by popularity. Equal
            counts are ranked by number.
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
        """Returns log(k q): the logarithm of the expected count of each of the k items in k draws."""
        return self.log_p[items] + math.log(max(1, len(items)))
