"""Packed batches: attention over groups of sequences of similar length, all other layers over the rows.

A packed batch holds the rows of all sequences, one sequence after another. Embeddings, norms, projections, feed-forward
networks and dropout run on these rows. Only attention needs separate sequences: it runs on groups of similar length,
padded with zeros at the end. Causal attention needs no mask, because no position sees the padding after it.

A recording therefore holds groups: a site is called once for each of `Packing.groups`, in their order. The map of a
group has the axes (b_g,h,n_g,n_g), and a sequence of length n fills the first n rows and columns. The sequences of one
group, as a batch of their own, form one group again.
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

from zoo.attention import DenseSupport, MultiheadAttention
from zoo.nn.segments import array_ranges

CALL_COST, ROW_COST = 16384, 24
"""Estimated cost of one more call and of one more row, in pairs of positions, for a CPU and d about 50."""
_CAUSAL = DenseSupport(causal=True)
_PAIRS = 2**19
"""Maximum number of pairs in a group of several sequences: 13 sequences of length 200, 209 of length 50."""


@dataclass(frozen=True)
class Group:
    """Sequences that are padded to one length and attended in one call.

    Args:
        sequences: Their indices in the batch, the longest first.
        length: Length of the longest sequence, to which the others are padded.
    """

    sequences: tuple[int, ...]
    length: int


class Packing:
    """Moves the rows of a packed batch into groups and back.

    Args:
        lengths: Number of rows of each sequence, at least 1.
        causal: If True, a position attends to itself and those before it only.
    """

    def __init__(self, lengths: Int[Tensor, " b"], *, causal: bool) -> None:
        self.lengths = lengths.cpu().numpy().astype(np.int64)
        self.device = lengths.device
        self.groups = groups(self.lengths)
        self._starts, self._missing = np.zeros((2, len(self.lengths)), np.int64)
        self._slot_count = 0
        for group in self.groups:
            of = np.array(group.sequences)
            self._starts[of] = self._slot_count + np.arange(len(of)) * group.length
            self._missing[of] = group.length - self.lengths[of]
            self._slot_count += len(of) * group.length
        self._padded_at_end = self._slots(self._starts)
        self.supports = [self._support(group, causal) for group in self.groups]

    @property
    def longest(self) -> int:
        """Length of the longest sequence."""
        return max((group.length for group in self.groups), default=0)

    @property
    def last(self) -> Int[Tensor, " b"]:
        """Index of the last row of each sequence."""
        return torch.from_numpy(self.lengths.cumsum() - 1).to(self.device)

    def to_groups(self, x: Shaped[Tensor, "n *d"], *, front: bool = False) -> list[Shaped[Tensor, "..."]]:
        """Returns the rows of each group, (b_g, n_g, ...), padded with zeros at the end or, with `front`, in front."""
        slots = self._slots(self._starts + self._missing) if front else self._padded_at_end
        padded = cast("Tensor", _Spread.apply(x, slots, self._slot_count))
        parts = torch.split(padded, [len(group.sequences) * group.length for group in self.groups])
        return [part.view(-1, group.length, *x.shape[1:]) for part, group in zip(parts, self.groups, strict=True)]

    def back(self, grouped: Sequence[Shaped[Tensor, "..."]]) -> Shaped[Tensor, "n *d"]:
        """Returns the rows of the batch, in its order, from groups that are padded at the end."""
        rows = torch.cat([each.flatten(0, 1) for each in grouped])
        return cast("Tensor", _Pick.apply(rows, self._padded_at_end))

    def last_support(self, group: Group) -> DenseSupport:
        """Returns the support of a group's last query, if padding is in front."""
        missing = self._missing[list(group.sequences)]
        return self._make_support(np.arange(group.length) >= missing[:, None], causal=True)

    def _support(self, group: Group, causal: bool) -> DenseSupport:
        """Returns the support of a group, if padding is at the end."""
        if causal:
            return _CAUSAL
        lengths = self.lengths[list(group.sequences)]
        return self._make_support(np.arange(group.length) < lengths[:, None], causal=False)

    def _make_support(self, real: np.ndarray[Any, Any], causal: bool) -> DenseSupport:
        if real.all():
            return _CAUSAL if causal else DenseSupport()
        return DenseSupport.from_key_mask(torch.from_numpy(real).to(self.device), causal=causal)

    def _slots(self, starts: np.ndarray[Any, Any]) -> Int[Tensor, " n"]:
        """Returns the index of each row among the padded rows of all groups."""
        return torch.from_numpy(array_ranges(starts, self.lengths)).to(self.device)


def mix_sequences(
    mixer: nn.Module, query: Float[Tensor, "n d"], source: Float[Tensor, "n d"], packing: Packing
) -> Float[Tensor, "n d"]:
    """Applies a mixer to each sequence. Attention goes from `query` to `source`; other mixers ignore `source`."""
    supports = packing.supports
    if not isinstance(mixer, MultiheadAttention):
        parts = zip(packing.to_groups(query), supports, strict=True)
        return packing.back([mixer(x, support=support)[0] for x, support in parts])
    projected = (packing.to_groups(x) for x in (mixer.query(query), mixer.key(source), mixer.value(source)))
    context = [mixer.attend_projected(*each) for each in zip(*projected, supports, strict=True)]
    return cast("Tensor", mixer.out(packing.back(context)))


def groups(lengths: np.ndarray[Any, Any]) -> list[Group]:
    """Sorts sequences by length, the longest first, and cuts where padding would cost more than another call."""
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
    """Yields (start, stop) of the groups of descending lengths that minimise the total cost.

    A group costs CALL_COST + sequences x (n^2 + ROW_COST n), where n is its longest length. The minimum is found by
    dynamic programming over the distinct lengths.
    """
    distinct, counts = np.unique(-lengths, return_counts=True)
    of_one = distinct.astype(np.float64) ** 2 - ROW_COST * distinct
    ends = np.concatenate([[0], counts.cumsum()])
    least, cut = np.zeros(len(ends)), np.zeros(len(ends), np.int64)
    for stop in range(1, len(ends)):
        cost = least[:stop] + (ends[stop] - ends[:stop]) * of_one[:stop] + CALL_COST
        cut[stop] = cost.argmin()
        least[stop] = cost[cut[stop]]
    bounds = [len(distinct)]
    while bounds[-1]:
        bounds.append(int(cut[bounds[-1]]))
    for start, stop in pairwise(bounds[::-1]):
        yield int(ends[start]), int(ends[stop])


class _Spread(torch.autograd.Function):
    """Scatters rows to distinct slots of a zero tensor; the derivative gathers them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(slots)
        return x.new_zeros(count, *x.shape[1:]).index_copy_(0, slots, x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Pick.apply(gradient, *ctx.saved_tensors), None, None


class _Pick(torch.autograd.Function):
    """Gathers rows from distinct slots; the derivative scatters them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.count = len(x)
        return x.index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Spread.apply(gradient, *ctx.saved_tensors, ctx.count), None
