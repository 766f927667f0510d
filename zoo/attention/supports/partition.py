"""Cuts of a sequence into blocks of queries with a run of keys each, and the operations that read and join them.

No operation scatters: runs are views of the padded keys, and their gradient is summed in slices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, eq=False)
class Permutation:
    """A permutation of the positions of a sequence that puts positions that attend to each other together.

    Args:
        slots: Position in each slot; -1 for none.
        places: Slot of each position.
    """

    slots: Int[Tensor, " m"]
    places: Int[Tensor, " n"]


@dataclass(frozen=True, eq=False)
class Partition:
    """A cut of a sequence into `count` blocks of `size` queries, each with `slots` keys.

    Args:
        count: Number of blocks.
        size: Number of queries in a block.
        before: Number of slots by which the run of keys of a block begins before its first query.
        span: Length of the run.
        order: Permutation of queries and keys. Default: their own order.
        columns: Number of keys at the start of the sequence that all blocks attend to; they come before the run.
        links: Further blocks of keys for each block; they come after the run.
    """

    count: int
    size: int
    before: int
    span: int
    order: Permutation | None = None
    columns: int = 0
    links: Int[Tensor, "c links"] | None = None

    @property
    def slots(self) -> int:
        return self.columns + self.span + (0 if self.links is None else self.links.shape[1] * self.size)

    @property
    def pairs(self) -> int:
        return self.count * self.size * self.slots

    def block_queries(self, x: Shaped[Tensor, "b h q *d"]) -> Shaped[Tensor, "b h c r *d"]:
        """Returns the queries by block, zeros in rows without a query."""
        rows = _fit(self._permute(x.reshape(*x.shape[:3], _width(x))), 0, self.count * self.size)
        return rows.reshape(*x.shape[:2], self.count, self.size, *x.shape[3:])

    def block_keys(self, x: Shaped[Tensor, "b h k *d"]) -> Shaped[Tensor, "b h c s *d"]:
        """Returns the keys of each block, zeros in slots without a key."""
        vectors = x.reshape(*x.shape[:3], _width(x))
        pieces = [self._run(self._permute(vectors))]
        if self.columns:
            pieces.insert(0, vectors[:, :, None, : self.columns].expand(-1, -1, self.count, -1, -1))
        if self.links is not None and self.links.shape[1]:
            every = max(1, -(-vectors.shape[2] // self.size))  # of the whole sequence, also in a part of its cut
            linked = self._blocks(vectors, every).index_select(2, self.links.flatten())
            slots = self.links.shape[1] * self.size
            pieces.append(linked.reshape(*x.shape[:2], self.count, slots, vectors.shape[-1]))
        blocks = pieces[0] if len(pieces) == 1 else torch.cat(pieces, 3)
        return blocks.reshape(*blocks.shape[:4], *x.shape[3:])

    def part(self, blocks: slice) -> Partition:
        """Returns a cut with only some of the blocks, for the whole sequence."""
        links = None if self.links is None else self.links[blocks]
        count, before = blocks.stop - blocks.start, self.before - blocks.start * self.size
        return replace(self, count=count, before=before, links=links)

    def pad_to_blocks(self, x: Shaped[Tensor, "b h k d"]) -> Shaped[Tensor, "b h m d"]:
        """Pads keys with zeros up to the end of the last block, so that parts of the cut need not."""
        return _fit(x, 0, self.count * self.size)

    def add_keys(self, total: Shaped[Tensor, "b h m d"], keys: Shaped[Tensor, "b h c s d"], blocks: slice) -> None:
        """Adds the gradients of the keys of some blocks to `total`, in which position 0 is at index `before`."""
        assert self.links is not None
        sizes = [self.columns, self.span, keys.shape[3] - self.columns - self.span]
        columns, run, linked = torch.split_with_sizes(keys, sizes, 3)
        total[:, :, self.before : self.before + self.columns] += columns.sum(2)
        by_block = total.view(*total.shape[:2], total.shape[2] // self.size, self.size, total.shape[-1])
        _add_runs(by_block[:, :, blocks.start :], run)
        links = self.links[blocks] + self.before // self.size
        for number, piece in enumerate(torch.split(linked, self.size, 3)):
            by_block.index_add_(2, links[:, number], piece)

    def room(self) -> int:
        """Returns the number of positions that `total` needs in `add_keys`."""
        return _reach(self.count, self.size, self.span) * self.size

    def to_queries(self, rows: Shaped[Tensor, "b h c r *d"], queries: int) -> Shaped[Tensor, "b h q *d"]:
        """Joins blocks of queries, the inverse of `block_queries`."""
        if self.order is None:
            return rows.flatten(2, 3)[:, :, :queries]
        vectors = rows.reshape(*rows.shape[:2], self.count * self.size, math.prod(rows.shape[4:]))
        vectors = vectors[:, :, : len(self.order.slots)]
        reordered = _Reordered.apply(vectors, self.order.places, self.order.slots)
        return reordered.reshape(*rows.shape[:2], queries, *rows.shape[4:])  # type: ignore[no-any-return]

    def _permute(self, vectors: Shaped[Tensor, "b h n w"]) -> Tensor:
        if self.order is None:
            return vectors
        return _Reordered.apply(vectors, self.order.slots, self.order.places)  # type: ignore[no-any-return]

    def _blocks(self, vectors: Shaped[Tensor, "b h n w"], count: int) -> Shaped[Tensor, "b h {count} r w"]:
        whole = _fit(vectors, 0, count * self.size)
        return whole.reshape(*vectors.shape[:2], count, self.size, vectors.shape[-1])

    def _run(self, vectors: Shaped[Tensor, "b h n w"]) -> Shaped[Tensor, "b h c run w"]:
        if self.count == 1:
            return _fit(vectors, self.before, self.span).unsqueeze(2)
        if self.before == 0 and self.span == self.size:
            return self._blocks(vectors, self.count)
        return _Runs.apply(vectors, self.count, self.size, self.before, self.span)  # type: ignore[no-any-return]


def _width(x: Tensor) -> int:
    return math.prod(x.shape[3:])


def _fit(x: Tensor, before: int, length: int) -> Tensor:
    """Pads or cuts axis 2 to `length`, starting `before` positions before its beginning, with zeros beyond its ends."""
    after = length - before - x.shape[2]
    return x if before == after == 0 else F.pad(x, (0, 0, before, after))


class _Reordered(torch.autograd.Function):
    """x[:, :, slots], with zeros where a slot is -1. The gradient is a gather too, as no position has two slots."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, slots: Tensor, places: Tensor) -> Tensor:
        if len(slots) <= x.shape[2]:
            return x.index_select(2, slots)
        return x.index_select(2, slots.clamp(min=0)).masked_fill_((slots < 0).unsqueeze(-1), 0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        slots, places = ctx.saved_tensors
        return _Reordered.apply(gradient, places, slots), None, None


class _Runs(torch.autograd.Function):
    """The run of keys of each block, as a view of the padded keys: (b,h,n,w) -> (b,h,c,span,w)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, count: int, size: int, before: int, span: int) -> Tensor:
        padded = _fit(x, before, _reach(count, size, span) * size)
        return padded.unfold(2, span, size)[:, :, :count].transpose(-2, -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.shape = inputs[0].shape[2], *inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _SumOfRuns.apply(gradient, *ctx.shape), None, None, None, None


class _SumOfRuns(torch.autograd.Function):
    """The sum of overlapping runs, the adjoint of `_Runs`; sums over slices, as a scatter takes ten times as long."""

    generate_vmap_rule = True

    @staticmethod
    def forward(runs: Tensor, length: int, count: int, size: int, before: int, span: int) -> Tensor:
        total = runs.new_zeros(*runs.shape[:2], _reach(count, size, span), size, runs.shape[-1])
        _add_runs(total, runs)
        return _fit(total.flatten(2, 3), -before, length)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.shape = inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _Runs.apply(gradient, *ctx.shape[1:]), None, None, None, None, None


def _add_runs(total: Shaped[Tensor, "b h m r w"], runs: Shaped[Tensor, "b h c span w"]) -> None:
    """Adds runs to `total`; run i begins at block i."""
    for block, piece in enumerate(torch.split(runs, total.shape[3], 3)):
        total[:, :, block : block + runs.shape[2], : piece.shape[3]] += piece


def _reach(count: int, size: int, span: int) -> int:
    """Returns the number of blocks that the runs of all blocks cover."""
    return count - 1 + -(-span // size)
