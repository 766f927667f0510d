"""How an evaluation ranks the held-out item, and in one line what its figures mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64
from torch import Tensor

from zoo.attention.ranges import Count, Seed
from zoo.data.loader import hashed_seed
from zoo.errors import ConfigError
from zoo.tasks.recommendation.batch import Catalogue, Histories
from zoo.tasks.recommendation.ranking.metrics import RankMetrics
from zoo.tasks.recommendation.ranking.popularity import popularity_ranks
from zoo.tasks.recommendation.ranking.ranks import MEMORY, LeftOut, Ranked, Score, rank_all, rank_among, scores_of
from zoo.tasks.recommendation.sampling import Unseen

ScoreOwn = Callable[[Int[Tensor, "b c"]], Float[Tensor, "b c"]]
"""Each user's scores of items of its own."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Full ranking of the catalogue, or of the held-out item among sampled negatives.

    Figures of the two are different metrics. Which users are evaluated, and what is held out, is the data's affair.

    Args:
        ks: Lengths of the lists by which hits, gains and coverage are measured.
        negatives: None ranks all items. A number ranks the held-out item among as many, drawn uniformly and with
            replacement outside the user's items of training, as the authors of SASRec do with 100. One that happens to
            be the held-out item is not counted against it. The draw depends on the seed, the split and the user's id
            alone: it is the same in every epoch, batch and process.
        seen: "leave_out" ranks nothing that the user has chosen before, but the held-out item in any case; "rank" ranks
            that too. Of full ranking.
        seed: Of the negatives.
        memory: Bytes of a block of scores at most.
    """

    ks: Sequence[Count] = (1, 5, 10, 20)
    negatives: Count | None = None
    seen: Literal["leave_out", "rank"] = "leave_out"
    seed: Seed = 0
    memory: Count = MEMORY

    def __post_init__(self) -> None:
        if not self.ks or self.ks[0] < 1 or list(self.ks) != sorted(set(self.ks)):
            raise ConfigError(f"model.protocol.ks={list(self.ks)}: write one length or more from 1, in ascending order")
        if self.negatives is not None and self.negatives < 1:
            raise ConfigError(
                f"model.protocol.negatives={self.negatives}: write a number from 1, or null for full ranking"
            )
        if self.seen not in ("leave_out", "rank"):
            raise ConfigError(f"model.protocol.seen={self.seen}: write leave_out or rank")
        if self.memory < 1:
            raise ConfigError(f"model.protocol.memory={self.memory}: write bytes, such as {MEMORY}")

    def describe(self, items: int) -> str:
        """What is ranked, for a catalogue of so many items: one line, to be stored beside the figures."""
        if self.negatives is None:
            return f"full ranking of {items:,} items, seen items {_SEEN[self.seen]}"
        return (
            f"sampled ranking: the held-out item among {self.negatives} uniform negatives outside the user's items of "
            f"training, with replacement, seed {self.seed}"
        )

    def metrics(self, items: int, *, ks: Sequence[int] | None = None, lists: bool = True) -> RankMetrics:
        """What the ranks of this protocol, and its lists, come to; at its own lengths, if no `ks` are given."""
        places = items if self.negatives is None else self.negatives + 1
        return RankMetrics(self.ks if ks is None else ks, items, ranks=places, lists=lists)

    def rank(self, score: Score, batch: Histories, *, own: ScoreOwn | None = None, lists: bool = True) -> Ranked:
        """Ranks each user's held-out item.

        Args:
            score: All users' scores of a block of items.
            batch: The users.
            own: Each user's scores of items of its own, for sampled negatives; None picks them from `score`.
            lists: Whether the best of all items are listed too, also where the rank is among negatives.
        """
        found = None
        if self.negatives is None or lists:
            found = self.recommend(score, batch, self.ks[-1] if lists else 0)
        if found is not None and self.negatives is None:
            return found
        wanted = batch.held_out.clamp(min=0)[:, None]
        candidates = torch.cat([wanted, self.candidates(batch)], 1)
        scores = scores_of(score, candidates) if own is None else own(candidates)
        ranks = rank_among(scores[:, 0], scores[:, 1:], candidates[:, 1:] == wanted).where(batch.held_out >= 0, -1)
        if found is not None:
            return Ranked(ranks, found.top, found.scores, among_all=found.ranks)
        return Ranked(ranks, candidates[:, :0], scores[:, :0])

    def recommend(self, score: Score, batch: Histories, count: int) -> Ranked:
        """The best of all items, so many for each user, and the held-out item's rank among all."""
        return rank_all(
            score,
            batch.held_out,
            items=_known(batch.catalogue),
            top=count,
            left_out=left_out(batch) if self.seen == "leave_out" else None,
            memory=self.memory,
        )

    def popularity(self, batch: Histories) -> Int[Tensor, " b"]:
        """The ranks by this protocol, if items are scored by how often they were chosen in training."""
        counts = batch.catalogue.counts.to(batch.held_out.device)
        if self.negatives is None:
            counts = counts[: _known(batch.catalogue)]
            return popularity_ranks(counts, batch.held_out, left_out(batch) if self.seen == "leave_out" else None)
        wanted, candidates = batch.held_out.clamp(min=0)[:, None], self.candidates(batch)
        ranks = rank_among(counts[wanted[:, 0]].double(), counts[candidates].double(), candidates == wanted)
        return ranks.where(batch.held_out >= 0, -1)

    def candidates(self, batch: Histories) -> Int[Tensor, "b negatives"]:
        """The negatives of each user."""
        if self.negatives is None:
            raise ValueError("full ranking has no negatives")
        unseen = Unseen.of(batch)
        unseen.refuse_none()
        seeds = [hashed_seed(self.seed, split, user) for split, user in zip(batch.splits, batch.ids, strict=True)]
        numbers = torch.from_numpy(_numbers(np.array(seeds, dtype=np.uint64), self.negatives)).to(batch.seen.device)
        users = torch.arange(len(seeds), device=batch.seen.device)[:, None]
        return unseen.at(users, numbers % unseen.left[:, None])


_SEEN = {"leave_out": "left out", "rank": "ranked too"}


def left_out(batch: Histories) -> LeftOut:
    """What the users of a batch have chosen: the items of training, and those of the window."""
    pairs = LeftOut(torch.cat([batch.seen_users, batch.users]), torch.cat([batch.seen, batch.items]))
    return pairs if batch.catalogue.unknown is None else pairs.within(0, _known(batch.catalogue))


def _known(catalogue: Catalogue) -> int:
    """Items that can be recommended: the row that unknown ones share is the last, if there is one."""
    return len(catalogue) if catalogue.unknown is None else catalogue.unknown


def _numbers(seeds: UInt64[np.ndarray[Any, Any], " b"], count: int) -> np.ndarray[Any, Any]:
    """(b, count) numbers below 2^63, a row a seed, of a generator that counts (SplitMix64, Steele et al. 2014)."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = seeds[:, None] + steps
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: np.ndarray[Any, Any] = ((x ^ (x >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
    return found
