"""Views: exact reductions of the maps of long inputs, computed one block of queries at a time in O(n) memory.

For a view, a fused site computes the weights of a few queries at a time and never stores all n x n of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention.supports.dense import DenseSupport
from zoo.types import NonNegativeInt, PositiveInt, validate_ranges

RowWeigher = Callable[[slice, DenseSupport], Tensor]
"""Computes the weights (b,h,q,k) of some queries from their slice and their support."""
# Weights in a block: 16 MB in fp32; a softmax holds several copies of them.
_NUMBERS = 1 << 22


class Block(NamedTuple):
    """The weights of some queries; `start` is counted from the first query that the view reads."""

    start: int
    weights: Float[Tensor, "b h rows k"]


class Reduced(NamedTuple):
    """The result of a view."""

    weights: Float[Tensor, "b h ..."]
    keys: Int[Tensor, "b h ..."] | None = None
    """Key of each weight, if it does not follow from its index."""


@runtime_checkable
class Reduction(Protocol):
    """A reduction of a map to a size that fits into memory."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of the result."""
        ...

    def rows(self, queries: int) -> slice:
        """Returns the queries that the view reads."""
        ...

    def reduce(self, blocks: Iterator[Block], queries: int, keys: int) -> Reduced:
        """Reduces the weights of consecutive blocks of queries; there is at least one block, which may be empty."""
        ...


@validate_ranges
@dataclass(frozen=True)
class Rows:
    """Keeps the rows of the queries from `start` to `stop - 1` unchanged."""

    start: NonNegativeInt
    stop: PositiveInt
    axes: ClassVar[tuple[str, ...]] = ("batch", "head", "query", "key")

    def __post_init__(self) -> None:
        if not self.start < self.stop:
            raise ValueError(f"rows need start < stop, got {self.start}:{self.stop}")

    def rows(self, queries: int) -> slice:
        if self.stop > queries:
            raise ValueError(f"rows {self.start}:{self.stop} were asked for, and there are {queries} queries")
        return slice(self.start, self.stop)

    def reduce(self, blocks: Iterator[Block], queries: int, keys: int) -> Reduced:
        return _concatenate(((start, (weights,)) for start, weights in blocks), self.stop - self.start)


@validate_ranges
@dataclass(frozen=True)
class Pooled:
    """Pools a map to `size` x `size` cells.

    Weights are summed over the keys of a cell, so that the sums of rows do not change, and averaged over its queries.
    Position i of n is in cell floor(i size / n); if n is below `size`, each position has its own cell.
    """

    size: PositiveInt
    axes: ClassVar[tuple[str, ...]] = ("batch", "head", "query_cell", "key_cell")

    def rows(self, queries: int) -> slice:
        return slice(0, queries)

    def reduce(self, blocks: Iterator[Block], queries: int, keys: int) -> Reduced:
        across, down = min(self.size, keys), min(self.size, queries)
        total: Tensor | None = None
        for start, weights in blocks:
            if total is None:
                total = weights.new_zeros(*weights.shape[:2], down, across)
                of_query, of_key = (self._cells(n, weights.device) for n in (queries, keys))
            in_columns = weights.new_zeros(*weights.shape[:3], across).index_add_(3, of_key, weights)
            total.index_add_(2, of_query[start : start + weights.shape[2]], in_columns)
        assert total is not None
        return Reduced(total / torch.bincount(of_query, minlength=down).unsqueeze(1))

    def _cells(self, length: int, device: torch.device) -> Int[Tensor, " n"]:
        return torch.arange(length, device=device) * min(self.size, length) // max(length, 1)


@validate_ranges
@dataclass(frozen=True)
class TopK:
    """Keeps the `k` largest weights of each query in descending order, or all if there are fewer keys."""

    k: PositiveInt
    axes: ClassVar[tuple[str, ...]] = ("batch", "head", "query", "rank")

    def rows(self, queries: int) -> slice:
        return slice(0, queries)

    def reduce(self, blocks: Iterator[Block], queries: int, keys: int) -> Reduced:
        top = min(self.k, keys)
        return _concatenate(((start, tuple(weights.topk(top, dim=-1))) for start, weights in blocks), queries)


@dataclass(frozen=True)
class Entropy:
    """Computes - sum_j w_j log w_j of each query, in nats: 0 for a single key, log n for n keys of equal weight."""

    axes: ClassVar[tuple[str, ...]] = ("batch", "head", "query")

    def rows(self, queries: int) -> slice:
        return slice(0, queries)

    def reduce(self, blocks: Iterator[Block], queries: int, keys: int) -> Reduced:
        return _concatenate(((start, (torch.special.entr(weights).sum(-1),)) for start, weights in blocks), queries)


def apply_reduction(
    view: Reduction, weigh: RowWeigher, shape: tuple[int, int, int, int], support: DenseSupport
) -> tuple[Reduced, DenseSupport]:
    """Applies a view to a map (b,h,q,k); returns the result and the support of the queries that the view reads."""
    queries, keys = shape[2:]
    rows = view.rows(queries)
    return view.reduce(_blocks(rows, weigh, shape, support), queries, keys), support.select_queries(rows, queries)


def _blocks(rows: slice, weigh: RowWeigher, shape: tuple[int, int, int, int], support: DenseSupport) -> Iterator[Block]:
    batch, heads, queries, keys = shape
    size = max(1, _NUMBERS // max(1, batch * heads * keys))
    for start in range(rows.start, max(rows.stop, rows.start + 1), size):
        block = slice(start, min(start + size, rows.stop))
        yield Block(start - rows.start, weigh(block, support.select_queries(block, queries)))


def _concatenate(parts: Iterable[tuple[int, tuple[Tensor, ...]]], queries: int) -> Reduced:
    """Concatenates the results of blocks along the queries.

    They are copied into tensors of full size at once: small results that are kept between freed blocks would fragment
    the heap, by 3 GB for the top keys of 32,768 queries.
    """
    whole: list[Tensor] = []
    for start, part in parts:
        if not whole:
            whole = [x.new_empty(*x.shape[:2], queries, *x.shape[3:]) for x in part]
        for target, x in zip(whole, part, strict=True):
            target[:, :, start : start + x.shape[2]] = x
    return Reduced(*whole)
