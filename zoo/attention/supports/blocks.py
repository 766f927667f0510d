"""Sparse attention within a sequence: blocks of queries, each with the keys that its queries may attend to.

`BlockSet` is one regular set of blocks, a `BlockStructure` has one or two of them, and a `BlockSupport` is a structure
with the mask of a batch. A structure is made from a rule about positions, once for a length, and is shared. Time and
memory are O(queries x keys of one query), also for making it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from zoo.attention.kernels.cache import cache_on
from zoo.attention.kernels.dtypes import accumulation_dtype, upcast
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.partition import Partition
from zoo.attention.supports.support import (
    RowFunction,
    Support,
    mask_of_example,
    mask_of_heads,
)

Rule = Callable[[Tensor, Tensor], Tensor]
"""Returns the mask (c,r,s) of the pairs of query positions (c,r,1) and key positions (c,1,s), both int32."""


@dataclass(frozen=True, eq=False)
class BlockSet:
    """Blocks of queries and their keys.

    Args:
        queries: Query in each row, -1 for none.
        keys: Key in each slot, -1 for none.
        permitted: Mask of the pairs that exist; None: all.
        lengths: Lengths of the shortest and the longest sequence that has each slot; None: all sequences have it.
    """

    cut: Partition
    queries: Int[Tensor, "c r"]
    keys: Int[Tensor, "c s"]
    permitted: Bool[Tensor, "c r s"] | None
    lengths: tuple[Int[Tensor, "c s"], Int[Tensor, "c s"]] | None = None

    @classmethod
    def from_partition(
        cls,
        cut: Partition,
        queries: int,
        keys: int,
        device: torch.device,
        start: int,
        rule: Rule | None,
        lengths: tuple[Int[Tensor, "c s"], Int[Tensor, "c s"]] | None = None,
    ) -> BlockSet:
        """Makes the blocks of a sequence.

        Args:
            start: Position of the first query.
            rule: Pairs that exist; None: all.
        """
        query_at = cut.block_queries(torch.arange(1, queries + 1, device=device)[None, None])[0, 0] - 1
        key_at = cut.block_keys(torch.arange(1, keys + 1, device=device)[None, None])[0, 0] - 1
        if rule is None:
            return cls(cut, query_at, key_at, None, lengths)
        i, j = query_at.int().unsqueeze(2), key_at.int().unsqueeze(1)
        return cls(cut, query_at, key_at, rule(i + start, j) & (i >= 0) & (j >= 0), lengths)


@dataclass(frozen=True, eq=False)
class BlockStructure:
    """The pairs of a sequence.

    Args:
        rest: BlockSet of all queries, or of those that are not in `first`.
        queries: Number of queries.
        keys: Number of keys.
        first: One block of the first queries, if they attend to other keys than the rest.
        start: Position of the first query; the first key has position 0.
    """

    rest: BlockSet
    queries: int
    keys: int
    first: BlockSet | None = None
    start: int = 0

    @property
    def parts(self) -> tuple[BlockSet, ...]:
        return (self.rest,) if self.first is None else (self.first, self.rest)

    def split(self, pairs: Shaped[Tensor, "*bh e"]) -> list[Shaped[Tensor, "*bh _c _r _s"]]:
        """Splits (b,h,e) into the pairs of each part, as rows of its blocks: (b,h,c,r,s)."""
        pieces = torch.split_with_sizes(pairs, [part.cut.pairs for part in self.parts], -1)
        shapes = [(part.cut.count, part.cut.size, part.cut.slots) for part in self.parts]
        return [piece.reshape(*piece.shape[:-1], *shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def join(self, parts: Iterable[Shaped[Tensor, "..."]]) -> Shaped[Tensor, "..."]:
        """Joins (b,h,c,r,s,*d) of each part to (b,h,e,*d), the inverse of `split`."""
        flat = [part.flatten(2, 4) for part in parts]
        return flat[0] if len(flat) == 1 else torch.cat(flat, 2)

    def to_queries(self, parts: Iterable[Shaped[Tensor, "..."]]) -> Shaped[Tensor, "..."]:
        """Joins (b,h,c,r,*d) of each part to (b,h,q,*d)."""
        vectors = [part.cut.to_queries(rows, self.queries) for part, rows in zip(self.parts, parts, strict=True)]
        if self.first is None:
            return vectors[0]
        return torch.cat([vectors[0], vectors[1][:, :, self.first.cut.size :]], 2)


@dataclass(frozen=True, eq=False)
class BlockSupport(Support):
    """The pairs of a layout, except those that the mask of a batch forbids: (b,h,e), with one flat axis of pairs.

    Queries, keys and values are (b,h,n,d), as for `DenseSupport`.
    """

    axes: ClassVar[tuple[str, ...]] = ("batch", "head", "pair")

    layout: BlockStructure
    masks: tuple[Bool[Tensor, "*#bh _c _r _s"] | None, ...]
    """Mask of the pairs of each part of the layout; None: all exist."""
    seen_queries: Bool[Tensor, "#b #h q"] | None = None
    """Mask of the queries that have a pair; None: all have one."""
    given: Bool[Tensor, "#b #h #q #k"] | None = None
    """Mask of the batch."""
    is_whole: bool = True
    """True if there is no mask and every key has a pair."""
    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_structure(cls, layout: BlockStructure, support: DenseSupport) -> BlockSupport:
        """Makes the support of the pairs of a layout that a mask permits; the layout already includes causality."""
        permitted = support.permitted
        if permitted is None and layout.queries == layout.keys and not layout.start:
            return cls(layout, tuple(part.permitted for part in layout.parts))
        masks = tuple(_intersect(part, permitted, layout) for part in layout.parts)
        return cls(layout, masks, _queries_seen(layout, masks), permitted, is_whole=False)

    @property
    def permitted(self) -> Bool[Tensor, "*#bh e"]:
        """Mask of the pairs of the layout that exist."""
        masks = [_whole(part, mask) for part, mask in zip(self.layout.parts, self.masks, strict=True)]
        shape = max((mask.shape[:-3] for mask in masks), key=len)
        return torch.cat([mask.expand(*shape, -1, -1, -1).flatten(-3) for mask in masks], -1)

    @property
    def later(self) -> int:
        return self.layout.keys - self.layout.queries - self.layout.start

    def pairs(self) -> Int[Tensor, "2 e"]:
        at = [(part.queries.unsqueeze(2), part.keys.unsqueeze(1)) for part in self.layout.parts]
        sides = [(i.expand(-1, -1, j.shape[2]), j.expand(-1, i.shape[1], -1)) for i, j in at]
        return torch.cat([torch.stack([i.flatten(), j.flatten()]) for i, j in sides], 1)

    def zeros(self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b h k d"]) -> Float[Tensor, "b h e"]:
        return query.new_zeros(*query.shape[:2], sum(part.cut.pairs for part in self.layout.parts))

    def dot(self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "#b #h k d"]) -> Float[Tensor, "b h e"]:
        query, key = upcast(query), key.to(accumulation_dtype(query))  # as DenseSupport does
        with torch.autocast(query.device.type, enabled=False):
            scores = [_products(part.cut.block_queries(query), part.cut.block_keys(key)) for part in self.layout.parts]
        return self.layout.join(scores)

    def gather_queries(self, x: Float[Tensor, "b h q *d"]) -> Float[Tensor, "b h e *d"]:
        parts = [(part.cut.block_queries(x).unsqueeze(4), part.cut.slots) for part in self.layout.parts]
        tail = [-1] * (x.dim() - 3)
        return self.layout.join(queries.expand(-1, -1, -1, -1, slots, *tail) for queries, slots in parts)

    def gather_keys(self, x: Float[Tensor, "b h k *d"]) -> Float[Tensor, "b h e *d"]:
        parts = [(part.cut.block_keys(x).unsqueeze(3), part.cut.size) for part in self.layout.parts]
        tail = [-1] * (x.dim() - 3)
        return self.layout.join(keys.expand(-1, -1, -1, size, -1, *tail) for keys, size in parts)

    def dot_parameter(
        self, hidden: Float[Tensor, "b h e d"], parameter: Float[Tensor, "h d"]
    ) -> Float[Tensor, "b h e"]:
        return torch.einsum("bhed,hd->bhe", hidden, parameter)

    def apply_per_query(self, function: RowFunction, scores: Float[Tensor, "b h e"]) -> Float[Tensor, "b h e"]:
        rows = zip(self.layout.split(scores), self.masks, strict=True)
        return self.layout.join(function(row, mask) for row, mask in rows)

    def combine(self, weights: Float[Tensor, "b h e"], value: Float[Tensor, "b h k v"]) -> Float[Tensor, "b h q v"]:
        rows = zip(self.layout.parts, self.layout.split(weights.to(value.dtype)), strict=True)
        return self.layout.to_queries(weights @ part.cut.block_keys(value) for part, weights in rows)

    def zero_masked(self, x: Float[Tensor, "b g k d"]) -> Float[Tensor, "b g k d"]:
        is_seen = self._keys_seen()
        if is_seen is None:
            return x
        if is_seen.shape[1] not in (1, x.shape[1]):  # a key head is seen if one of its group of query heads sees it
            is_seen = is_seen.reshape(len(is_seen), x.shape[1], is_seen.shape[1] // x.shape[1], is_seen.shape[2]).any(2)
        return torch.where(is_seen.unsqueeze(-1), x, x.new_zeros(()))

    def zero_blind_queries(
        self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "*keys dk"]
    ) -> Float[Tensor, "b h q d"]:
        if self.seen_queries is None:
            return query
        return torch.where(self.seen_queries.unsqueeze(-1), query, query.new_zeros(()))

    def relative_positions(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]
    ) -> Int[Tensor, "1 1 e"]:
        start = self.layout.start
        at = [(part, part.keys.unsqueeze(1) - part.queries.unsqueeze(2) - start) for part in self.layout.parts]
        # Slots without a pair get offset 0, because the positions of gaps would widen the range of offsets.
        near = [
            distances if part.permitted is None else distances.masked_fill(~part.permitted, 0) for part, distances in at
        ]
        return torch.cat([distances.flatten() for distances in near])[None, None]

    def gather_rows(self, x: Float[Tensor, "b h q m"], index: Int[Tensor, "#b #h e"]) -> Float[Tensor, "b h e"]:
        rows = zip(self.layout.parts, self.layout.split(index), strict=True)
        return self.layout.join(_gather_columns(part.cut.block_queries(x), columns) for part, columns in rows)

    def scatter_add(
        self, pairs: Float[Tensor, "b h e"], index: Int[Tensor, "#b #h e"], bins: int
    ) -> Float[Tensor, "b h q m"]:
        rows = zip(self.layout.split(pairs), self.layout.split(index), strict=True)
        return self.layout.to_queries(_scatter_columns(values, at, bins) for values, at in rows)

    def sizes(self, pairs: Shaped[Tensor, "b h e"]) -> tuple[int, int]:
        return self.layout.queries, self.layout.keys

    def exists(self, pairs: Shaped[Tensor, "b h e"]) -> Bool[Tensor, "*#bh e"]:
        return self.permitted

    def sum_per_query(self, pairs: Float[Tensor, "b h e"]) -> Float[Tensor, "b h q"]:
        return self.layout.to_queries(values.sum(-1) for values in self.layout.split(pairs))

    def to_dense(self, pairs: Float[Tensor, "b h e"], queries: int, keys: int) -> Float[Tensor, "b h q k"]:
        at_query, at_key = self.pairs().clamp(min=0)
        existing = torch.where(self.permitted, pairs, pairs.new_zeros(()))
        dense = pairs.new_zeros(*pairs.shape[:2], queries * keys)
        return dense.index_add(2, at_query * keys + at_key, existing).reshape(*pairs.shape[:2], queries, keys)

    def row(self, pairs: Float[Tensor, "b h e"], query: int) -> Float[Tensor, "b h k"]:
        at_query, at_key = self.pairs()
        own = (at_query == query) & (at_key >= 0)
        existing = torch.where(self.permitted[..., own], pairs[..., own], pairs.new_zeros(()))
        return pairs.new_zeros(*pairs.shape[:2], self.layout.keys).index_add(2, at_key[own], existing)

    def select_example(self, index: int) -> BlockSupport:
        return self._map_masks(lambda mask: mask_of_example(mask, index))

    def select_heads(self, heads: Sequence[int] | None) -> BlockSupport:
        return self._map_masks(lambda mask: mask_of_heads(mask, heads))

    def _map_masks(self, change: Callable[[Tensor], Tensor]) -> BlockSupport:
        """Returns the support of some examples or heads; a mask (c,r,s) is shared by all."""
        masks = (mask if mask is None or mask.dim() == 3 else change(mask) for mask in self.masks)
        seen_queries = None if self.seen_queries is None else change(self.seen_queries)
        given_mask = None if self.given is None else change(self.given)
        return replace(self, masks=tuple(masks), seen_queries=seen_queries, given=given_mask)

    def _keys_seen(self) -> Bool[Tensor, "#b #h k"] | None:
        """Returns a mask of the keys that have a pair; None if there is no mask, when all of them do."""
        if self.is_whole:
            return None
        return cache_on(self._known, "keys", (), lambda: _keys_seen(self.layout, self.masks, self.given))


def _intersect(part: BlockSet, permitted: Tensor | None, layout: BlockStructure) -> Bool[Tensor, "*#bh c r s"] | None:
    """Returns the pairs of the layout that both the layout and a mask (b,h,q,k) permit."""
    if permitted is None:
        return part.permitted
    if permitted.shape[2] == 1:
        mask = part.cut.block_keys(permitted[:, :, 0].expand(-1, -1, layout.keys)).unsqueeze(3)
    else:
        at_query, at_key = part.queries.clamp(min=0).unsqueeze(2), part.keys.clamp(min=0).unsqueeze(1)
        if not layout.queries or not layout.keys:  # no entry of the mask could be read for the gaps of the layout
            permitted = permitted.new_zeros(*permitted.shape[:2], 1, 1)
        else:
            permitted = permitted.expand(-1, -1, layout.queries, layout.keys)
        mask = permitted[:, :, at_query, at_key]
    if part.lengths is not None:
        shortest, longest = part.lengths
        own = own_lengths(permitted, layout.keys)[:, None, None]
        mask = mask & ((shortest <= own) & (own <= longest))[:, None, :, None]
    return mask.expand(-1, -1, -1, part.cut.size, -1) if part.permitted is None else mask & part.permitted


def own_lengths(permitted: Bool[Tensor, "#b #h #q #k"], keys: int) -> Int[Tensor, "#b"]:
    """Returns the length of each sequence of a batch, up to the last key that its mask permits to any query."""
    is_seen = permitted.any(1).any(1).expand(-1, keys)
    places = torch.arange(1, keys + 1, device=is_seen.device)
    return torch.where(is_seen, places, 0).amax(-1) if keys else places.new_zeros(len(is_seen))


def _queries_seen(layout: BlockStructure, masks: Iterable[Tensor | None]) -> Bool[Tensor, "#b #h q"] | None:
    rows = [_whole(part, mask).any(-1) for part, mask in zip(layout.parts, masks, strict=True)]
    return layout.to_queries(row if row.dim() == 4 else row[None, None] for row in rows)


def _keys_seen(
    layout: BlockStructure, masks: Iterable[Tensor | None], permitted: Tensor | None
) -> Bool[Tensor, "#b #h k"] | None:
    if permitted is not None and permitted.shape[2] == 1 and layout.queries == layout.keys and not layout.start:
        return permitted[:, :, 0].expand(-1, -1, layout.keys)  # every position may attend to itself
    is_seen = None
    for part, mask in zip(layout.parts, masks, strict=True):
        by_block = _whole(part, mask).any(-2)
        by_block = by_block if by_block.dim() == 4 else by_block[None, None]
        counts = torch.zeros(*by_block.shape[:2], layout.keys + 1, dtype=torch.int32, device=by_block.device)
        at = torch.where(part.keys < 0, layout.keys, part.keys).flatten()
        seen_by_part = counts.index_add(2, at, by_block.flatten(2).int())[..., :-1] > 0
        is_seen = seen_by_part if is_seen is None else is_seen | seen_by_part
    return is_seen


def _whole(part: BlockSet, mask: Tensor | None) -> Bool[Tensor, "*#bh c r s"]:
    if mask is not None:
        return mask
    return torch.ones((), dtype=torch.bool, device=part.keys.device).expand(
        part.cut.count, part.cut.size, part.cut.slots
    )


def _products(query: Float[Tensor, "b h c r d"], key: Float[Tensor, "#b #h c s d"]) -> Float[Tensor, "b h c r s"]:
    """Computes query · key; keys that are shared by all examples and heads are not repeated."""
    if key.shape[:2].numel() == 1:
        return torch.einsum("bhcrd,csd->bhcrs", query, key[0, 0])
    return query @ key.transpose(-2, -1)


def _gather_columns(rows: Float[Tensor, "b h c r m"], index: Int[Tensor, "#b #h c r s"]) -> Float[Tensor, "b h c r s"]:
    return rows.gather(-1, index.expand(*rows.shape[:2], -1, -1, -1))


def _scatter_columns(rows: Float[Tensor, "b h c r s"], index: Int[Tensor, "#b #h c r s"], bins: int) -> Tensor:
    return rows.new_zeros(*rows.shape[:-1], bins).scatter_add(-1, index.expand_as(rows), rows)
