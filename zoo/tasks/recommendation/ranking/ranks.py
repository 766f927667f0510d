"""Computes the rank of the held-out item and the best items from scores of one block of items after another.

The rank is the number of better items, which needs no sorting; the best items so far are kept from block to block.
Memory is that of a block, for a catalogue of any size. An item with the same score as the held-out one counts as
better, so that a model with equal scores for all items ranks it last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MEMORY = 2**27
"""Maximum number of bytes of a block of scores."""
_CACHE = 2**23
"""Bytes of a block of scores that fit a cache."""
_FEWEST, _MOST = 2**13, 2**16
"""Range of the number of items of a block: smaller blocks waste calls, and larger ones memory for item vectors."""

Score = Callable[[Int[Tensor, " i"]], Float[Tensor, "b i"]]
"""Computes all users' scores of some items, in a new tensor, since excluded items are marked in place."""


@dataclass(frozen=True)
class Ranked:
    """The ranks and the best items of the users of a batch.

    Args:
        ranks: Number of items that are better than the held-out one; -1 for a user without a held-out item.
        top: The best items, best first, filled up with -1.
        scores: Scores of the best items.
        among_all: Ranks among all items, if `ranks` are among sampled negatives and lists were asked for.
    """

    ranks: Int[Tensor, " b"]
    top: Int[Tensor, "b k"]
    scores: Float[Tensor, "b k"]
    among_all: Int[Tensor, " b"] | None = None


@dataclass(frozen=True)
class Exclusions:
    """Pairs of a user of the batch and an item that is neither ranked nor recommended; pairs may be repeated."""

    users: Int[Tensor, " s"]
    items: Int[Tensor, " s"]

    def but(self, held_out: Int[Tensor, " b"]) -> Exclusions:
        """Returns the pairs without held-out items, which are ranked even if the user has chosen them before."""
        return self._where(self.items != held_out[self.users])

    def select_block(self, start: int, stop: int) -> Exclusions:
        """Returns the pairs with an item of a block, numbered from the start of the block."""
        found = self._where((self.items >= start) & (self.items < stop))
        return Exclusions(found.users, found.items - start)

    def _where(self, kept: Bool[Tensor, " s"]) -> Exclusions:
        return Exclusions(self.users[kept], self.items[kept])


def rank_all(
    score: Score,
    held_out: Int[Tensor, " b"],
    *,
    items: int,
    top: int,
    left_out: Exclusions | None = None,
    memory: int = MEMORY,
) -> Ranked:
    """Ranks the whole catalogue, except for the pairs that are left out.

    Args:
        score: Computes the scores of users and items.
        held_out: Held-out item of each user; -1 if there is none.
        items: Number of items that are ranked, from the first one.
        top: Number of best items that are listed.
        left_out: Pairs that are not ranked; held-out items are ranked in any case.
        memory: Maximum number of bytes of a block of scores, which has at least one item.
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
        columns = wanted - start
        inside = known & (columns >= 0) & (columns < stop - start)
        columns = columns.clamp(0, stop - start - 1)[:, None]
        own = scores.gather(1, columns)[:, 0] if own is None else own
        if left_out is not None:
            _mark(scores, left_out if size == items else left_out.select_block(start, stop), columns, inside[:, None])
        # the held-out item itself is among the items with at least its score
        itself = inside & (scores.gather(1, columns)[:, 0] >= own)
        ranks += (scores >= own[:, None]).sum(1) - itself.long()
        values, found = _best(scores, top)
        if best is None:
            best, listed = values, found + start
        else:
            best, order = _best(torch.cat([best, values], 1), top)
            listed = torch.cat([listed, found + start], 1).gather(1, order)
    assert best is not None
    assert own is not None
    refuse_nan(best, own[known])  # topk treats NaN as the largest value, so it is the first of its list
    return Ranked(ranks.where(known, -1), listed.where(best > -torch.inf, -1)[:, :top], best[:, :top])


def rank_against(
    own: Float[Tensor, " b"], candidates: Float[Tensor, "b c"], same: Bool[Tensor, "b c"]
) -> Int[Tensor, " b"]:
    """Counts the candidates that are better than each user's held-out item; candidates equal to it (`same`) are not."""
    refuse_nan(candidates, own)
    return ((candidates >= own[:, None]) & ~same).sum(1)


def scores_of(score: Score, wanted: Int[Tensor, "b c"]) -> Float[Tensor, "b c"]:
    """Selects the scores of items that differ from user to user; each distinct item is scored once."""
    distinct, which = torch.unique(wanted, return_inverse=True)
    return score(distinct).float().gather(1, which)


def refuse_nan(scores: Float[Tensor, "b k"], own: Float[Tensor, " b"]) -> None:
    """Raises a ValueError if a score is NaN or the score of a held-out item is not finite."""
    if bool(scores.isnan().any()) or not bool(own.isfinite().all()):
        raise ValueError("a score is NaN or infinite, so that items cannot be ranked; check the model's weights")


def _block(users: int, items: int, memory: int) -> int:
    """Returns the number of items of a block."""
    column = 4 * max(1, users)
    return max(1, min(items, _MOST, memory // column, max(_FEWEST, _CACHE // column)))


def _mark(
    scores: Float[Tensor, "b i"], left_out: Exclusions, columns: Int[Tensor, "b 1"], inside: Bool[Tensor, "b 1"]
) -> None:
    """Sets the scores of left-out pairs to -inf, except for held-out items, at `columns` if `inside` the block."""
    before = scores.gather(1, columns)
    scores[left_out.users, left_out.items] = -torch.inf
    scores.scatter_(1, columns, before.where(inside, scores.gather(1, columns)))


def _best(scores: Float[Tensor, "b i"], top: int) -> tuple[Float[Tensor, "b k"], Int[Tensor, "b k"]]:
    """Returns the highest scores and their indices; for `top` = 0 the highest score with a placeholder index."""
    if top:
        found = scores.topk(min(top, scores.shape[1]))
        return found.values, found.indices
    return scores.amax(1, keepdim=True), torch.zeros(len(scores), 1, dtype=torch.int64, device=scores.device)
