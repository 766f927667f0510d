"""Where the held-out item stands among all, and the best items, from scores of one block of items after another.

The rank is a count of better items, so that nothing is sorted; the best items are kept while the blocks pass. Memory
is that of a block, whatever the size of the catalogue. An item with the score of the held-out one counts as better: a
model that scores all items alike is last, not first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MEMORY = 2**27
"""Bytes of a block of scores at most."""
_CACHE = 2**23
"""Bytes of a block of scores that a cache holds."""
_FEWEST, _MOST = 2**13, 2**16
"""Items of a block: fewer are too little work for a call, and the vectors of more take memory too."""

Score = Callable[[Int[Tensor, " i"]], Float[Tensor, "b i"]]
"""All users' scores of these items, in a tensor of its own: what is left out is marked in it."""


@dataclass(frozen=True)
class Ranked:
    """What an evaluation finds out about the users of a batch.

    Args:
        ranks: How many items are better than the held-out one; -1 for a user without one.
        top: The best items, best first; -1 where no more are left.
        scores: Theirs.
        among_all: Where ranks are among sampled negatives, those among all items, if the lists were asked for.
    """

    ranks: Int[Tensor, " b"]
    top: Int[Tensor, "b k"]
    scores: Float[Tensor, "b k"]
    among_all: Int[Tensor, " b"] | None = None


@dataclass(frozen=True)
class LeftOut:
    """Pairs of a user of the batch and an item that is neither ranked nor recommended to it; repeats do no harm."""

    users: Int[Tensor, " s"]
    items: Int[Tensor, " s"]

    def but(self, held_out: Int[Tensor, " b"]) -> LeftOut:
        """Without the held-out items, which are ranked also if the user has chosen them before."""
        return self._where(self.items != held_out[self.users])

    def within(self, start: int, stop: int) -> LeftOut:
        """Those of a block of items, numbered from its start."""
        found = self._where((self.items >= start) & (self.items < stop))
        return LeftOut(found.users, found.items - start)

    def _where(self, kept: Bool[Tensor, " s"]) -> LeftOut:
        return LeftOut(self.users[kept], self.items[kept])


def rank_all(
    score: Score,
    held_out: Int[Tensor, " b"],
    *,
    items: int,
    top: int,
    left_out: LeftOut | None = None,
    memory: int = MEMORY,
) -> Ranked:
    """Ranks the whole catalogue but what is left out.

    Args:
        score: Of users and items.
        held_out: The item that each user chose; -1 if that is not known.
        items: Of the catalogue, from the first; others are not ranked.
        top: How many of the best are listed.
        left_out: Which of them are not to be ranked; the held-out items are ranked in any case.
        memory: Bytes of a block of scores, of one item's at least.
    """
    device, top = held_out.device, min(top, items)
    if items < 1:
        raise ValueError("there is no item to be ranked")
    known, wanted = held_out >= 0, held_out.clamp(min=0)
    size = _block(len(held_out), items, memory)
    own = None if size == items else scores_of(score, wanted[:, None])[:, 0]
    ranks = torch.zeros_like(held_out)
    best: Tensor | None = None
    listed = torch.empty(0)
    for start in range(0, items, size):
        stop = min(start + size, items)
        scores = score(torch.arange(start, stop, device=device)).float()
        places = wanted - start
        inside = known & (places >= 0) & (places < stop - start)
        places = places.clamp(0, stop - start - 1)[:, None]
        own = scores.gather(1, places)[:, 0] if own is None else own
        if left_out is not None:
            _mark(scores, left_out if size == items else left_out.within(start, stop), places, inside[:, None])
        # the held-out item itself is among those that are as good
        itself = inside & (scores.gather(1, places)[:, 0] >= own)
        ranks += (scores >= own[:, None]).sum(1) - itself.long()
        values, found = _best(scores, top)
        if best is None:
            best, listed = values, found + start
        else:
            best, order = _best(torch.cat([best, values], 1), top)
            listed = torch.cat([listed, found + start], 1).gather(1, order)
    assert best is not None
    assert own is not None
    refuse_nan(best, own[known])  # NaN counts as the largest: it heads a list, if it is anywhere
    return Ranked(ranks.where(known, -1), listed.where(best > -torch.inf, -1)[:, :top], best[:, :top])


def rank_among(
    own: Float[Tensor, " b"], candidates: Float[Tensor, "b c"], same: Bool[Tensor, "b c"]
) -> Int[Tensor, " b"]:
    """How many candidates are better than a user's held-out item; those that are that item itself (`same`) are not."""
    refuse_nan(candidates, own)
    return ((candidates >= own[:, None]) & ~same).sum(1)


def scores_of(score: Score, wanted: Int[Tensor, "b c"]) -> Float[Tensor, "b c"]:
    """Of items that each user has for itself, with no item scored twice."""
    distinct, which = torch.unique(wanted, return_inverse=True)
    return score(distinct).float().gather(1, which)


def refuse_nan(scores: Float[Tensor, "b k"], own: Float[Tensor, " b"]) -> None:
    """An error unless the scores can be compared and those of held-out items are finite."""
    if bool(scores.isnan().any()) or not bool(own.isfinite().all()):
        raise ValueError("a score is not a finite number, so that nothing can be ranked; look at the model's weights")


def _block(users: int, items: int, memory: int) -> int:
    """Items of a block."""
    column = 4 * max(1, users)
    return max(1, min(items, _MOST, memory // column, max(_FEWEST, _CACHE // column)))


def _mark(
    scores: Float[Tensor, "b i"], left_out: LeftOut, places: Int[Tensor, "b 1"], inside: Bool[Tensor, "b 1"]
) -> None:
    """What is left out has no chance; what is held out, at `places` if it is `inside`, keeps its score."""
    before = scores.gather(1, places)
    scores[left_out.users, left_out.items] = -torch.inf
    scores.scatter_(1, places, before.where(inside, scores.gather(1, places)))


def _best(scores: Float[Tensor, "b i"], top: int) -> tuple[Float[Tensor, "b k"], Int[Tensor, "b k"]]:
    """The highest scores and where they are; for no list at all, the highest one alone."""
    if top:
        found = scores.topk(min(top, scores.shape[1]))
        return found.values, found.indices
    return scores.amax(1, keepdim=True), torch.zeros(len(scores), 1, dtype=torch.int64, device=scores.device)
