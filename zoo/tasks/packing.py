"""Sequences of similar length side by side: what attention needs of a packed batch.

A batch is packed: the rows of all sequences, one sequence after another. Embeddings, norms, projections, feed-forward
networks and dropout run on these rows. Attention alone needs sequences apart: it runs on groups of similar length,
padded with zeros at the end. Where it is causal no position sees the padding behind it, and no mask is needed.

What is recorded is therefore of groups: a site is called once for each of `Packing.groups`, in their order. The
sequences of one group, as a batch of their own, are one group again: its map has the axes (b_g,h,n_g,n_g), and of each
sequence the first rows and columns are real.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from zoo.attention import DenseSupport, MultiHead
from zoo.tasks.ranges import array_ranges

_CALL, _ROW = 16384, 24
"""What a call for one more group and a row more cost, in pairs of positions: estimates for a CPU, d about 50."""
_CAUSAL = DenseSupport(causal=True)
_PAIRS = 2**19
"""Pairs of a group at most, unless it is a single sequence: 13 of 200 rows, 209 of 50."""


@dataclass(frozen=True)
class Group:
    """Sequences that attend side by side.

    Args:
        sequences: Their numbers in the batch, the longest first.
        length: Rows of the longest, to which the others are padded.
    """

    sequences: tuple[int, ...]
    length: int


class Packing:
    """Which rows of a packed batch are whose, and how they come into groups and back.

    Args:
        lengths: How many rows each sequence has, one or more.
        causal: Whether a position sees those up to its own alone.
    """

    def __init__(self, lengths: Int[Tensor, " b"], *, causal: bool) -> None:
        self.lengths = lengths.cpu().numpy().astype(np.int64)
        self.device = lengths.device
        self.groups = groups(self.lengths)
        self._starts, self._missing = np.zeros((2, len(self.lengths)), np.int64)
        self._slots = 0
        for group in self.groups:
            of = np.array(group.sequences)
            self._starts[of] = self._slots + np.arange(len(of)) * group.length
            self._missing[of] = group.length - self.lengths[of]
            self._slots += len(of) * group.length
        self._at_end = self._places(self._starts)
        self.supports = [self._support(group, causal) for group in self.groups]

    @property
    def longest(self) -> int:
        """Rows of the longest sequence."""
        return max((group.length for group in self.groups), default=0)

    @property
    def last(self) -> Int[Tensor, " b"]:
        """The last row of each sequence."""
        return torch.from_numpy(self.lengths.cumsum() - 1).to(self.device)

    def to_groups(self, x: Shaped[Tensor, "n *d"], *, front: bool = False) -> list[Shaped[Tensor, "..."]]:
        """(b_g, n_g, ...) of each group; padding is zero, at the end or in front."""
        places = self._places(self._starts + self._missing) if front else self._at_end
        padded = cast("Tensor", _Spread.apply(x, places, self._slots))
        parts = torch.split(padded, [len(group.sequences) * group.length for group in self.groups])
        return [part.view(-1, group.length, *x.shape[1:]) for part, group in zip(parts, self.groups, strict=True)]

    def back(self, grouped: Sequence[Shaped[Tensor, "..."]]) -> Shaped[Tensor, "n *d"]:
        """The rows of the batch in its order, of groups that are padded at the end."""
        rows = torch.cat([each.flatten(0, 1) for each in grouped])
        return cast("Tensor", _Pick.apply(rows, self._at_end))

    def last_support(self, group: Group) -> DenseSupport:
        """What the last query of each sequence may see, where padding is in front."""
        missing = self._missing[list(group.sequences)]
        return self._of_real(np.arange(group.length) >= missing[:, None], causal=True)

    def _support(self, group: Group, causal: bool) -> DenseSupport:
        """What rows see, where padding is at the end."""
        if causal:
            return _CAUSAL
        lengths = self.lengths[list(group.sequences)]
        return self._of_real(np.arange(group.length) < lengths[:, None], causal=False)

    def _of_real(self, real: np.ndarray[Any, Any], causal: bool) -> DenseSupport:
        if real.all():
            return _CAUSAL if causal else DenseSupport()
        return DenseSupport.from_key_mask(torch.from_numpy(real).to(self.device), causal=causal)

    def _places(self, starts: np.ndarray[Any, Any]) -> Int[Tensor, " n"]:
        """Of each row, among the rows of all groups."""
        return torch.from_numpy(array_ranges(starts, self.lengths)).to(self.device)


def mixed(
    mixer: nn.Module, query: Float[Tensor, "n d"], source: Float[Tensor, "n d"], packing: Packing
) -> Float[Tensor, "n d"]:
    """Each sequence's rows mixed: by `MultiHead`, or by another mixer, which has no source."""
    supports = packing.supports
    if not isinstance(mixer, MultiHead):
        parts = zip(packing.to_groups(query), supports, strict=True)
        return packing.back([mixer(x, support=support)[0] for x, support in parts])
    projected = (packing.to_groups(x) for x in (mixer.query(query), mixer.key(source), mixer.value(source)))
    context = [mixer.between(*each) for each in zip(*projected, supports, strict=True)]
    return cast("Tensor", mixer.out(packing.back(context)))


def groups(lengths: np.ndarray[Any, Any]) -> list[Group]:
    """Sequences by length, the longest first, cut where padding would cost more than another call."""
    if len(lengths) and lengths.min() < 1:
        raise ValueError("every sequence of a batch must have a row or more")
    order = np.argsort(-lengths, kind="stable")
    found = []
    for start, stop in _cuts(lengths[order]):
        most = max(1, _PAIRS // int(lengths[order[start]]) ** 2)
        for first in range(start, stop, most):
            of = order[first : min(first + most, stop)]
            found.append(Group(tuple(of.tolist()), int(lengths[of[0]])))
    return found


def _cuts(lengths: np.ndarray[Any, Any]) -> Iterator[tuple[int, int]]:
    """(start, stop) of groups of descending lengths, with the least sum of a call each and sequences x (n^2 + _ROW n).

    By dynamic programming over distinct lengths, n being the group's longest.
    """
    distinct, counts = np.unique(-lengths, return_counts=True)
    of_one = distinct.astype(np.float64) ** 2 - _ROW * distinct
    ends = np.concatenate([[0], counts.cumsum()])
    least, cut = np.zeros(len(ends)), np.zeros(len(ends), np.int64)
    for stop in range(1, len(ends)):
        cost = least[:stop] + (ends[stop] - ends[:stop]) * of_one[:stop] + _CALL
        cut[stop] = cost.argmin()
        least[stop] = cost[cut[stop]]
    bounds = [len(distinct)]
    while bounds[-1]:
        bounds.append(int(cut[bounds[-1]]))
    for start, stop in pairwise(bounds[::-1]):
        yield int(ends[start]), int(ends[stop])


class _Spread(torch.autograd.Function):
    """Rows to places of their own among zeros; the derivative picks them out again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(places)
        return x.new_zeros(count, *x.shape[1:]).index_copy_(0, places, x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Pick.apply(gradient, *ctx.saved_tensors), None, None


class _Pick(torch.autograd.Function):
    """The rows at places, no two of which are the same; the derivative spreads them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.count = len(x)
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Spread.apply(gradient, *ctx.saved_tensors, ctx.count), None
