"""The protocol by which an evaluation ranks held-out items, and its description in one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64
from torch import Tensor

from zoo.data.loader import hash_seed
from zoo.errors import ConfigError
from zoo.tasks.recommendation.batch import Catalogue, SequenceBatch
from zoo.tasks.recommendation.ranking.metrics import RankMetrics
from zoo.tasks.recommendation.ranking.popularity import popularity_ranks
from zoo.tasks.recommendation.ranking.ranks import MEMORY, Exclusions, Ranked, Score, rank_against, rank_all, scores_of
from zoo.tasks.recommendation.sampling import NegativeSampler
from zoo.types import PositiveInt, Seed, validate_ranges

ScoreOwn = Callable[[Int[Tensor, "b c"]], Float[Tensor, "b c"]]
"""Computes the scores of items that differ from user to user."""


@validate_ranges
@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Ranks the held-out item among the whole catalogue, or among sampled negatives.

    The metrics of the two cannot be compared. The data decides which users are evaluated, and what is held out.

    Args:
        ks: Lengths of the lists by which hits, gains and coverage are measured.
        negatives: Number of negatives, drawn uniformly and with replacement from the items that the user did not
            choose in training; the authors of SASRec draw 100. A negative that equals the held-out item does not count.
            The draw depends only on the seed, the split and the user's id: it is the same in every epoch, batch and
            process. None ranks all items.
        seen: With full ranking, "leave_out" excludes items that the user has chosen before, except for the held-out
            item; "rank" includes them.
        seed: Seed of the negatives.
        memory: Maximum number of bytes of a block of scores.
    """

    ks: Sequence[PositiveInt] = (1, 5, 10, 20)
    negatives: PositiveInt | None = None
    seen: Literal["leave_out", "rank"] = "leave_out"
    seed: Seed = 0
    memory: PositiveInt = MEMORY

    def __post_init__(self) -> None:
        if not self.ks or list(self.ks) != sorted(set(self.ks)):
            raise ConfigError(f"model.protocol.ks={list(self.ks)}: write one length or more from 1, in ascending order")
        if self.seen not in ("leave_out", "rank"):
            raise ConfigError(f"model.protocol.seen={self.seen}: write leave_out or rank")

    def describe(self, items: int) -> str:
        """Returns a line that describes the ranking of a catalogue of `items` items; it is stored with the metrics."""
        if self.negatives is None:
            return f"full ranking of {items:,} items, seen items {_SEEN[self.seen]}"
        return (
            f"sampled ranking: the held-out item among {self.negatives} uniform negatives outside the user's items of "
            f"training, with replacement, seed {self.seed}"
        )

    def metrics(self, items: int, *, ks: Sequence[int] | None = None, lists: bool = True) -> RankMetrics:
        """Makes the metrics of this protocol, with its own `ks` by default."""
        ranks = items if self.negatives is None else self.negatives + 1
        return RankMetrics(self.ks if ks is None else ks, items, ranks=ranks, lists=lists)

    def rank(self, score: Score, batch: SequenceBatch, *, own: ScoreOwn | None = None, lists: bool = True) -> Ranked:
        """Ranks each user's held-out item.

        Args:
            score: Computes all users' scores of a block of items.
            batch: The users.
            own: Computes the scores of sampled negatives. Default: they are selected from `score`.
            lists: If True, the best of all items are listed, also if the rank is among negatives.
        """
        found = None
        if self.negatives is None or lists:
            found = self.recommend(score, batch, self.ks[-1] if lists else 0)
        if found is not None and self.negatives is None:
            return found
        wanted = batch.held_out.clamp(min=0)[:, None]
        candidates = torch.cat([wanted, self.candidates(batch)], 1)
        scores = scores_of(score, candidates) if own is None else own(candidates)
        ranks = rank_against(scores[:, 0], scores[:, 1:], candidates[:, 1:] == wanted).where(batch.held_out >= 0, -1)
        if found is not None:
            return Ranked(ranks, found.top, found.scores, among_all=found.ranks)
        return Ranked(ranks, candidates[:, :0], scores[:, :0])

    def recommend(self, score: Score, batch: SequenceBatch, count: int) -> Ranked:
        """Returns the `count` best of all items for each user, and the rank of the held-out item among all."""
        return rank_all(
            score,
            batch.held_out,
            items=_count_known(batch.catalogue),
            top=count,
            left_out=left_out(batch) if self.seen == "leave_out" else None,
            memory=self.memory,
        )

    def popularity(self, batch: SequenceBatch) -> Int[Tensor, " b"]:
        """Computes the ranks by this protocol when the score of an item is its count in training."""
        counts = batch.catalogue.counts.to(batch.held_out.device)
        if self.negatives is None:
            counts = counts[: _count_known(batch.catalogue)]
            return popularity_ranks(counts, batch.held_out, left_out(batch) if self.seen == "leave_out" else None)
        wanted, candidates = batch.held_out.clamp(min=0)[:, None], self.candidates(batch)
        ranks = rank_against(counts[wanted[:, 0]].double(), counts[candidates].double(), candidates == wanted)
        return ranks.where(batch.held_out >= 0, -1)

    def candidates(self, batch: SequenceBatch) -> Int[Tensor, "b negatives"]:
        """Draws the negatives of each user."""
        if self.negatives is None:
            raise ValueError("full ranking has no negatives")
        unseen = NegativeSampler.from_batch(batch)
        unseen.refuse_none()
        seeds = [hash_seed(self.seed, split, user) for split, user in zip(batch.splits, batch.ids, strict=True)]
        numbers = torch.from_numpy(_numbers(np.array(seeds, dtype=np.uint64), self.negatives)).to(batch.seen.device)
        users = torch.arange(len(seeds), device=batch.seen.device)[:, None]
        return unseen.select(users, numbers % unseen.left[:, None])


_SEEN = {"leave_out": "left out", "rank": "ranked too"}


def left_out(batch: SequenceBatch) -> Exclusions:
    """Returns the items that the users of a batch have chosen: those of training, and those of the window."""
    pairs = Exclusions(torch.cat([batch.seen_users, batch.users]), torch.cat([batch.seen, batch.items]))
    return pairs if batch.catalogue.unknown is None else pairs.select_block(0, _count_known(batch.catalogue))


def _count_known(catalogue: Catalogue) -> int:
    """Returns the number of items that can be recommended, without the row of unknown items, which is the last."""
    return len(catalogue) if catalogue.unknown is None else catalogue.unknown


def _numbers(seeds: UInt64[np.ndarray[Any, Any], " b"], count: int) -> np.ndarray[Any, Any]:
    """Returns (b, count) numbers below 2^63, one row for each seed, of SplitMix64 (Steele et al. 2014)."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = seeds[:, None] + steps
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: np.ndarray[Any, Any] = ((x ^ (x >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
    return found
