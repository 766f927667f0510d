"""Metrics of rankings: hit rate, NDCG, mean reciprocal rank, and coverage of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from torchmetrics import Metric


class RankMetrics(Metric):
    """Computes hr@k, ndcg@k and mrr of ranks, and coverage@k of lists, over all processes.

    A user has one held-out item: the ideal gain is 1, NDCG is 1 / log2(rank + 2), and recall@k equals hr@k. The state
    is a histogram of ranks, which does not depend on the order of users; torchmetrics' retrieval metrics would keep the
    score of every user and item.

    Args:
        ks: Lengths of lists.
        items: Number of items in the catalogue.
        ranks: Number of possible ranks. Default: `items`.
        lists: If True, measures coverage: the share of the catalogue that is in the list of at least one user.
    """

    full_state_update = False
    ranks: Tensor
    shown: Tensor

    def __init__(self, ks: Sequence[int], items: int, *, ranks: int | None = None, lists: bool = True) -> None:
        super().__init__()
        self.ks = tuple(ks)
        self.lists = lists
        counted = torch.zeros(items if ranks is None else ranks, dtype=torch.int64)
        listed = torch.zeros(len(self.ks), items if lists else 0, dtype=torch.int32)
        self.add_state("ranks", counted, dist_reduce_fx="sum")
        self.add_state("shown", listed, dist_reduce_fx="max")

    def update(self, ranks: Int[Tensor, " b"], top: Int[Tensor, "b k"] | None = None) -> None:
        """Adds users.

        Args:
            ranks: Rank of each user's held-out item, from 0; -1 if there is none.
            top: List of each user's best items, filled up with -1.
        """
        known = ranks[ranks >= 0]
        self.ranks.index_add_(0, known, torch.ones_like(known))
        if not self.lists:
            return
        if top is None:
            raise ValueError("coverage is measured of lists of items, but top is None")
        for row, k in enumerate(self.ks):
            listed = top[:, :k]
            self.shown[row, listed[listed >= 0]] = 1

    def compute(self) -> dict[str, Tensor]:
        counts = self.ranks.double()
        users = counts.sum()
        ranks = torch.arange(len(counts), dtype=torch.float64, device=counts.device)
        gains = counts / (ranks + 2).log2()
        found = {"mrr": (counts / (ranks + 1)).sum() / users}
        for row, k in enumerate(self.ks):
            found[f"hr@{k}"] = counts[:k].sum() / users
            found[f"ndcg@{k}"] = gains[:k].sum() / users
            if self.lists:
                found[f"coverage@{k}"] = (self.shown[row] > 0).double().mean()
        return {name: value.float() for name, value in found.items()}
