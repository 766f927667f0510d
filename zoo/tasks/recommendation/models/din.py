"""DIN: the probability that a user chooses a candidate, which attends to the user's history (Zhou et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention import Attention, DenseSupport, Dice, EdgeSupport, Use, check
from zoo.nn.segments import owners, ranges
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.types import PositiveInt, Probability, validate_ranges

_PAIRS = 2**13
"""Pairs of a candidate and a past item that are scored at once: more leave the cache, and cost four times as much."""
_TABLE = 2**22
"""Pairs of a candidate and a distinct past item of the batch whose scores are in memory at once."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidates, each with the part of a user's history that precedes it.

    Args:
        items: Numbers of the items.
        starts: Position in the packed batch at which each candidate's history begins.
        stops: Position after the last one of each candidate's history.
    """

    items: Int[Tensor, " q"]
    starts: Int[Tensor, " q"]
    stops: Int[Tensor, " q"]


@validate_ranges
class DIN(nn.Module):
    """logit(v | e_1 ... e_n) = b_v + MLP(BN([u, v, u * v])), u = sum_j a(e_j, v) e_j (eq. 3, figure 2).

    The product u * v, the bias b_v of an item and the batch norm are from the authors' code; there are no features of
    users or contexts. In training the pairs of a candidate and a past item are the edges of a graph: padding would
    cost time and enter the statistics of `Dice`.

    Args:
        items: Number of items, from the data.
        attend: `(dim, heads) -> Attention`, for a(e, v); the paper has `ActivationUnit` with `Unnormalized`.
        dim: Width of the embedding of an item, which candidates and histories share.
        hidden: Widths of the MLP's hidden layers.
        activation: Class or function that is called with the width of a hidden layer, such as `Dice` or
            `torch.nn.PReLU`.
        dropout: Probability that a hidden unit of the MLP is dropped in training.
    """

    def __init__(
        self,
        *,
        items: PositiveInt,
        attend: Callable[[int, int], Attention],
        dim: PositiveInt = 64,
        hidden: Sequence[PositiveInt] = (200, 80),
        activation: Callable[[int], nn.Module] = Dice,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        if not hidden:
            raise ValueError("hidden has no width: give one number or more")
        self.items = nn.Embedding(items, dim)
        self.bias = nn.Embedding(items, 1)
        self.attend = attend(dim, 1)
        self.attend.check_layout(EdgeSupport, "DIN")
        check(self.attend, Use.CROSS, "DIN")
        layers: list[nn.Module] = [nn.BatchNorm1d(3 * dim)]
        for width, following in pairwise((3 * dim, *hidden)):
            layers += [nn.Linear(width, following), activation(following), nn.Dropout(dropout)]
        self.mlp = nn.Sequential(*layers, nn.Linear(hidden[-1], 1))
        nn.init.normal_(self.items.weight, std=dim**-0.5)
        nn.init.zeros_(self.bias.weight)

    def forward(self, batch: SequenceBatch, candidates: Candidates) -> Float[Tensor, " q"]:
        """Computes the logit of each candidate."""
        query = self.items(candidates.items)
        history = self.items(batch.items).unsqueeze(1)
        support = pairs(candidates, len(batch.items))
        context, _ = self.attend(query.unsqueeze(1), history, history, support)
        return self._logits(context.squeeze(1), query, candidates.items)

    def scores(self, batch: SequenceBatch, items: Int[Tensor, "#b i"]) -> Float[Tensor, "b i"]:
        """Computes logits of candidates after the full history; `items` has one row for all users, or one for each.

        Users whose histories are equally long are computed together, without padding. The score of a candidate and a
        past item is the same for all users: if all users have the same candidates, it is computed once.
        """
        if len(items) == 1 and len(batch) > 1 and not self.training and self._is_plain():
            return self._score_shared(batch, items[0])
        items = items.expand(len(batch), -1)
        found = self.items.weight.new_empty(items.shape)
        for users, rows, at in _blocks(batch, items.shape[1]):
            which = items[users, at]
            query, history = self.items(which), self.items(batch.items[rows]).unsqueeze(1)
            context, _ = self.attend(query.unsqueeze(1), history, history, DenseSupport())
            found[users, at] = self._logits(context.flatten(0, 2), query.flatten(0, 1), which.flatten()).view(
                which.shape
            )
        return found

    def _score_shared(self, batch: SequenceBatch, items: Int[Tensor, " i"]) -> Float[Tensor, "b i"]:
        past, index = torch.unique(batch.items, return_inverse=True)
        key = self.attend.score.prepare(self.items(past)[None, None])
        found = self.items.weight.new_empty(len(batch), len(items))
        for start in range(0, len(items), _TABLE // len(past) + 1):
            some = items[start : start + _TABLE // len(past) + 1]
            parts = self.items(some)[None, None].split(_PAIRS // len(past) + 1, 2)
            table = torch.cat([self.attend.score(part, key, DenseSupport(), None) for part in parts], 2)[0, 0]
            for users, rows, at in _blocks(batch, len(some)):
                scores = table[at[0, :, None], index[rows][:, None]].unsqueeze(1)
                weights = self.attend.normalizer(scores, DenseSupport(), None)
                context = weights.to(table.dtype) @ self.items(batch.items[rows]).unsqueeze(1)
                which = some[at].expand(len(users), -1).flatten()
                logits = self._logits(context.flatten(0, 2), self.items(which), which)
                found[users, start + at] = logits.view(len(users), -1)
        return found

    def _is_plain(self) -> bool:
        """Returns whether a score depends on one pair only, and the weights are not recorded."""
        has_more = self.attend.restrict is not None or self.attend.position is not None
        return not (has_more or self.attend.normalizer.traits.hard or self.attend.probe.is_open)

    def _logits(
        self, context: Float[Tensor, "q d"], query: Float[Tensor, "q d"], items: Int[Tensor, " q"]
    ) -> Float[Tensor, " q"]:
        found = self.mlp(torch.cat([context, query, context * query], -1))
        return (found + self.bias(items)).squeeze(-1)  # type: ignore[no-any-return]


def make_candidates(batch: SequenceBatch, items: Int[Tensor, "b c"]) -> Candidates:
    """Returns the candidates of each user after the user's full history, user after user."""
    count = items.shape[1]
    starts, stops = (x.repeat_interleave(count) for x in (batch.starts, batch.ends))
    return Candidates(items.flatten(), starts, stops)


def pairs(candidates: Candidates, positions: int) -> EdgeSupport:
    """Returns the edges from the positions of each candidate's history to the candidate."""
    lengths = candidates.stops - candidates.starts
    at = ranges(candidates.starts, lengths)
    return EdgeSupport.from_edges(torch.stack([at, owners(lengths, len(at))]), len(lengths), positions)


def _blocks(batch: SequenceBatch, items: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yields blocks of users with equally long histories: users (b,1), their positions (b,n), candidates (1,c)."""
    at = torch.arange(items, device=batch.items.device)
    for length in set(batch.lengths.tolist()):
        users = (batch.lengths == length).nonzero()
        size = max(1, min(items, _PAIRS // length))
        together = max(1, _PAIRS // (length * size))
        for first in range(0, len(users), together):
            some = users[first : first + together]
            rows = batch.starts[some] + torch.arange(length, device=users.device)
            for start in range(0, items, size):
                yield some, rows, at[None, start : start + size]
