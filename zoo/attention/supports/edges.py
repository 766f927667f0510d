"""Supports of graphs: one row of weights for each edge, sorted by target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from zoo.attention.kernels import sparse
from zoo.attention.kernels.cache import cache_on, none_if_all
from zoo.attention.kernels.dtypes import accumulation_dtype, upcast
from zoo.attention.kernels.sparse import SparsePattern
from zoo.attention.supports.support import RowFunction, Support


@dataclass(frozen=True, eq=False)
class EdgeSupport(Support):
    """The edges of a graph: query `rows[e]` (the target) may attend to key `columns[e]` (the source).

    Edges are sorted by target. `order` is the index of each edge in the list that the support was made from, -1 for an
    added self-loop. `key_degrees` are the degrees of the keys, if queries and keys are the nodes of one graph.
    """

    axes: ClassVar[tuple[str, ...]] = ("edge", "head")
    is_ordered: ClassVar[bool] = False

    pattern: SparsePattern
    order: Int[Tensor, " e"]
    key_degrees: Int[Tensor, " k"] | None = None
    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_edges(
        cls, edges: Int[Tensor, "2 e"], num_queries: int, num_keys: int | None = None, *, self_loops: bool = False
    ) -> EdgeSupport:
        """Makes the support from (source, target) pairs in the format of PyG.

        Args:
            self_loops: If True, every node gets exactly one self-loop.
        """
        source, target = edges
        order = torch.arange(len(source), device=edges.device)
        if self_loops:
            if num_keys not in (None, num_queries):
                raise ValueError("self-loops need the same nodes on both sides")
            is_proper = source != target
            nodes = torch.arange(num_queries, device=edges.device)
            source, target = torch.cat([source[is_proper], nodes]), torch.cat([target[is_proper], nodes])
            order = torch.cat([order[is_proper], order.new_full((num_queries,), -1)])
        shape = num_queries, num_queries if num_keys is None else num_keys
        pattern, moved = SparsePattern.from_entries(target, source, shape)
        is_one_graph = num_keys in (None, num_queries)
        return cls(pattern, order[moved], key_degrees=pattern.row_starts.diff() if is_one_graph else None)

    @classmethod
    def from_groups(cls, groups: Int[Tensor, " n"], count: int) -> EdgeSupport:
        """Makes the support in which each group is a query that sees the rows of its group.

        Rows that are sorted by group become edges in the same order.

        Args:
            groups: Group of each row, from 0 to `count - 1`.
        """
        rows = torch.arange(len(groups), device=groups.device)
        return cls.from_edges(torch.stack([rows, groups]), count, len(groups))

    def repeat(self, times: int) -> EdgeSupport:
        """Repeats each query and its edges: copy c of query q is query q * times + c, and likewise for edges."""
        if times == 1:
            return self
        return cache_on(
            self._known, f"repeated {times} times", (self.order.device,), lambda: self._repeat_pattern(times)
        )

    @property
    def source(self) -> Int[Tensor, " e"]:
        return self.pattern.columns

    @property
    def target(self) -> Int[Tensor, " e"]:
        return self.pattern.rows

    @property
    def degrees(self) -> Int[Tensor, " q"]:
        """Number of keys that each query may attend to."""
        return self.pattern.row_starts.diff()

    def to(self, device: torch.device | str, **options: Any) -> EdgeSupport:
        degrees = None if self.key_degrees is None else self.key_degrees.to(device=device, **options)
        return EdgeSupport(self.pattern.to(device, **options), self.order.to(device=device, **options), degrees)

    def check(self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], value: Float[Tensor, "..."]) -> None:
        for name, x, axes in (("query", query, "(q, h, d)"), ("key", key, "(k, h, d)"), ("value", value, "(k, h, v)")):
            if x.dim() != 3:
                raise ValueError(f"{name} must have the axes {axes} over edges, got shape {tuple(x.shape)}")
        queries, keys = self.pattern.shape
        for name, x, axis, size in (
            ("queries", query, "q", queries),
            ("keys", key, "k", keys),
            ("values", value, "k", keys),
        ):
            if x.shape[0] != size:
                raise ValueError(f"the edges are of {axis}={size} nodes, and there are {x.shape[0]} {name}")

    def zeros(self, query: Float[Tensor, "q h d"], key: Float[Tensor, "k h d"]) -> Float[Tensor, "e h"]:
        return query.new_zeros(len(self.pattern), query.shape[1])

    def dot(self, query: Float[Tensor, "q h d"], key: Float[Tensor, "k h d"]) -> Float[Tensor, "e h"]:
        return sparse.dot(upcast(query), key.to(accumulation_dtype(query)), self.pattern)

    def gather_queries(self, x: Float[Tensor, "q h *d"]) -> Float[Tensor, "e h *d"]:
        return sparse.gather_rows(x, self.pattern)

    def gather_keys(self, x: Float[Tensor, "k h *d"]) -> Float[Tensor, "e h *d"]:
        return sparse.gather_columns(x, self.pattern)

    def broadcast_heads(self, parameter: Float[Tensor, "h d"]) -> Float[Tensor, "h d"]:
        return parameter

    def dot_parameter(self, hidden: Float[Tensor, "e h d"], parameter: Float[Tensor, "h d"]) -> Float[Tensor, "e h"]:
        return (hidden * parameter).sum(-1)

    def softmax(self, scores: Float[Tensor, "e h"]) -> Float[Tensor, "e h"]:
        return sparse.row_softmax(scores, self.pattern)

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # reads the lengths of rows, which a graph cannot
    def apply_per_query(self, function: RowFunction, scores: Float[Tensor, "e h"]) -> Float[Tensor, "e h"]:
        """Pads each row among rows of similar length, so that one query that sees all keys does not lengthen all."""
        rows = cache_on(self._known, "rows", (scores.device,), lambda: _Rows.from_pattern(self.pattern))
        padded = scores.new_zeros(rows.slots, scores.shape[1]).index_copy(0, rows.places, scores)
        pieces = torch.split_with_sizes(padded, [mask.numel() for mask in rows.permitted])
        results = [
            function(piece.view(*mask.shape, -1).permute(2, 0, 1), mask.unsqueeze(0)).permute(1, 2, 0).flatten(0, 1)
            for piece, mask in zip(pieces, rows.permitted, strict=True)
        ]
        return torch.cat(results).index_select(0, rows.places) if results else function(scores.t(), None).t()

    def combine(self, weights: Float[Tensor, "e h"], value: Float[Tensor, "k h v"]) -> Float[Tensor, "q h v"]:
        return sparse.product(weights, value, self.pattern)

    def zero_masked(self, x: Float[Tensor, "k h d"]) -> Float[Tensor, "k h d"]:
        """Returns keys with zeros at nodes without edges, which would reach the gradients of parameters."""
        return self._zero_unread(x, "seen", self.pattern.column_starts)

    def zero_blind_queries(self, query: Float[Tensor, "q h d"], key: Float[Tensor, "k h d"]) -> Float[Tensor, "q h d"]:
        return self._zero_unread(query, "sees", self.pattern.row_starts)

    def first_position(self, query: Float[Tensor, "q h d"], key: Float[Tensor, "k h d"]) -> int:
        raise ValueError("the nodes of a graph have no order: positions work on sequences")

    def relative_positions(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]
    ) -> Int[Tensor, "..."]:
        raise ValueError("the nodes of a graph have no order: positions work on sequences")

    def gather_rows(self, x: Float[Tensor, "..."], index: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
        raise ValueError("the nodes of a graph have no order: positions work on sequences")

    def scatter_add(self, pairs: Float[Tensor, "..."], index: Int[Tensor, "..."], bins: int) -> Float[Tensor, "..."]:
        raise ValueError("the nodes of a graph have no order: positions work on sequences")

    def sizes(self, pairs: Shaped[Tensor, "e h"]) -> tuple[int, int]:
        return self.pattern.shape

    def exists(self, pairs: Shaped[Tensor, "e h"]) -> Bool[Tensor, ""]:
        return torch.ones((), dtype=torch.bool, device=pairs.device)

    def sum_per_query(self, pairs: Float[Tensor, "e h"]) -> Float[Tensor, "q h"]:
        ones = pairs.new_ones(self.pattern.shape[1], pairs.shape[1], 1)
        return self.combine(pairs, ones).squeeze(-1)

    def pairs(self) -> Int[Tensor, "2 e"]:
        return torch.stack([self.target, self.source])

    def to_dense(self, pairs: Float[Tensor, "e h"], queries: int, keys: int) -> Float[Tensor, "1 h q k"]:
        """Returns a dense matrix; the weights of repeated edges are added."""
        dense = pairs.new_zeros(queries * keys, pairs.shape[1])
        dense = dense.index_add(0, self.target.long() * keys + self.source.long(), pairs)
        return dense.view(queries, keys, -1).permute(2, 0, 1).unsqueeze(0)

    def select_example(self, index: int) -> EdgeSupport:
        if index:
            raise ValueError(f"edges have no batch, so there is no example {index} of them")
        return self

    def select_heads(self, heads: Sequence[int] | None) -> EdgeSupport:
        return self

    def _repeat_pattern(self, times: int) -> EdgeSupport:
        copy = torch.arange(times, device=self.order.device).repeat(len(self.order))
        source, target, order = (x.long().repeat_interleave(times) for x in (self.source, self.target, self.order))
        queries, keys = self.pattern.shape
        repeated = EdgeSupport.from_edges(torch.stack([source, target * times + copy]), queries * times, keys)
        order = torch.where(order < 0, order, order * times + copy)
        return EdgeSupport(repeated.pattern, order[repeated.order])

    def _zero_unread(self, x: Float[Tensor, "n h d"], name: str, starts: Int[Tensor, " m"]) -> Float[Tensor, "n h d"]:
        has_edges = cache_on(self._known, name, (starts.device,), lambda: none_if_all(starts.diff() > 0))
        return x if has_edges is None else torch.where(has_edges[:, None, None], x, x.new_zeros(()))


@dataclass(frozen=True, eq=False)
class _Rows:
    """The entries of a pattern as padded rows, in groups of rows whose lengths differ by less than a factor of two.

    Args:
        places: Slot of each entry, counted over all groups.
        permitted: Mask of the slots with an entry for each group, (rows, longest).
    """

    places: Int[Tensor, " e"]
    permitted: tuple[Bool[Tensor, "_rows _longest"], ...]

    @classmethod
    def from_pattern(cls, pattern: SparsePattern) -> _Rows:
        lengths, target = pattern.row_starts.diff().long(), pattern.rows.long()
        group = torch.frexp(lengths.double()).exponent
        first, permitted, slots = torch.zeros_like(lengths), [], 0
        for number in torch.bincount(group[lengths > 0]).nonzero().flatten().tolist():
            rows = ((group == number) & (lengths > 0)).nonzero().squeeze(1)
            longest = int(lengths[rows].max())
            at = torch.arange(longest, device=rows.device)
            permitted.append(at < lengths[rows].unsqueeze(1))
            first[rows] = slots + longest * torch.arange(len(rows), device=rows.device)
            slots += longest * len(rows)
        before = torch.arange(len(target), device=target.device) - pattern.row_starts.long()[target]
        return cls(first[target] + before, tuple(permitted))

    @property
    def slots(self) -> int:
        return sum(mask.numel() for mask in self.permitted)
