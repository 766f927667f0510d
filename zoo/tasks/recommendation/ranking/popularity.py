"""The baseline that knows no user: items by how often they were chosen in training."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from zoo.tasks.recommendation.ranking.ranks import LeftOut


def popularity_ranks(
    counts: Int[Tensor, " i"], held_out: Int[Tensor, " b"], left_out: LeftOut | None = None
) -> Int[Tensor, " b"]:
    """As `rank_all` finds them with the counts for scores, without a score for each user and item.

    Args:
        counts: Of the items that are ranked.
        held_out: The item that each user chose; -1 if that is not known.
        left_out: What is not to be ranked.
    """
    items = len(counts)
    wanted = held_out.clamp(0, items - 1)
    own = counts[wanted]
    ranks = items - torch.searchsorted(counts.sort().values, own) - 1  # as popular or more, but the item itself
    if left_out is not None:
        pairs = left_out.but(held_out)
        distinct = torch.unique(pairs.users * items + pairs.items)
        users, chosen = distinct // items, distinct % items
        ranks = ranks.index_add(0, users, -(counts[chosen] >= own[users]).long())
    return ranks.where(held_out >= 0, -1)
