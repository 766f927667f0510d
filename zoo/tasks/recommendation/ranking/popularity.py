"""The popularity baseline: ranks items by the number of times that they were chosen in training."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from zoo.tasks.recommendation.ranking.ranks import Exclusions


def popularity_ranks(
    counts: Int[Tensor, " i"], held_out: Int[Tensor, " b"], left_out: Exclusions | None = None
) -> Int[Tensor, " b"]:
    """Computes the ranks of `rank_all` with counts as scores, without a score for each user and item.

    Args:
        counts: Count of each item that is ranked.
        held_out: Held-out item of each user; -1 if there is none.
        left_out: Pairs of users and items that are not ranked.
    """
    items = len(counts)
    wanted = held_out.clamp(0, items - 1)
    own = counts[wanted]
    ranks = (
        items - torch.searchsorted(counts.sort().values, own) - 1
    )  # number of items at least as popular, without the item itself
    if left_out is not None:
        pairs = left_out.but(held_out)
        distinct = torch.unique(pairs.users * items + pairs.items)
        users, chosen = distinct // items, distinct % items
        ranks = ranks.index_add(0, users, -(counts[chosen] >= own[users]).long())
    return ranks.where(held_out >= 0, -1)
