"""Who may attend to whom, and how pairs are laid out in memory.

A support is the layout of the pairs (query, key) that exist. Scores, normalisers and Attend are written with its
operations and so work on every layout. One convention everywhere: boolean, True = may attend.

| support      | query, key, value             | pairs            | who it is for             |
|--------------|-------------------------------|------------------|---------------------------|
| DenseSupport | (b,h,q,d), (b,h,k,d), (b,h,k,v) | (b,h,q,k)      | sequences, patches, sets  |
| EdgeSupport  | (q,h,d), (k,h,d), (k,h,v)     | (e,h), by target | graphs, and words to sentences: one row per edge |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from zoo.attention.kernels import sparse
from zoo.attention.kernels.kept import for_later, may_be_kept
from zoo.attention.kernels.precision import at_least_single, wide
from zoo.attention.kernels.sparse import SparsePattern

RowFunction = Callable[[Tensor, Tensor | None], Tensor]
KeyFunction = Callable[[Tensor], Tensor]
_Known = TypeVar("_Known")


@runtime_checkable
class Support(Protocol):
    """What scores, normalisers and Attend ask of a layout of pairs."""

    axes: ClassVar[tuple[str, ...]]
    """The names of the axes of pairs; the second is `head`."""

    def zeros(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> Float[Tensor, "..."]:
        """A zero for every pair."""
        ...

    def dot(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> Float[Tensor, "..."]:
        """query · key for every pair."""
        ...

    def at_query(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """What belongs to the query of each pair; broadcasts with `at_key`."""
        ...

    def at_key(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """What belongs to the key of each pair; broadcasts with `at_query`."""
        ...

    def of_key(self, function: KeyFunction, key: Float[Tensor, "*keys dk"]) -> Shaped[Tensor, "..."]:
        """`at_key(function(key))`, for a function of each key alone; what no query sees reaches no gradient of it."""
        ...

    def per_head(self, parameter: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """A parameter (h, d) in the shape that multiplies this layout's queries and keys."""
        ...

    def project(self, hidden: Float[Tensor, "..."], parameter: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """parameter (h, d) · hidden for every pair, where hidden has one vector a pair."""
        ...

    def softmax(self, scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Softmax over the permitted keys of each query, in at least fp32; zeros where there are none."""
        ...

    def by_row(self, function: RowFunction, scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """`function(scores (..., keys), permitted or None) -> weights`, on the keys of each query.

        `permitted` is boolean and broadcasts to the scores; None permits all. Scores elsewhere may be anything.
        """
        ...

    def combine(self, weights: Float[Tensor, "..."], value: Float[Tensor, "*values v"]) -> Float[Tensor, "..."]:
        """For each query the sum of the values, weighted."""
        ...

    def clean(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Keys or values with zeros at positions that no query may see: 0 x NaN would be NaN."""
        ...

    def clean_queries(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> Float[Tensor, "..."]:
        """Queries with zeros where they see no key, for the same reason."""
        ...

    def offsets(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> Int[Tensor, "..."]:
        """Position of the key less that of the query, for every pair; the last query stands at the last key."""
        ...

    def pick(self, x: Float[Tensor, "..."], index: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Of its query's row of x (b,h,q,m), the entry that `index` names for each pair."""
        ...

    def bin(self, pairs: Float[Tensor, "..."], index: Int[Tensor, "..."], bins: int) -> Float[Tensor, "..."]:
        """The opposite: for each query and bin, the sum of the pairs that `index` puts there: (b,h,q,m)."""
        ...

    def to_dense(self, pairs: Float[Tensor, "..."], queries: int, keys: int) -> Float[Tensor, "..."]:
        """(b,h,q,k), zero where no pair is: for tests, and for maps of short inputs."""
        ...


@dataclass(frozen=True, eq=False)
class DenseSupport:
    """Every query against every key, less what a mask or causality forbids.

    Args:
        permitted: True = may attend; any shape that broadcasts to (b,h,q,k). None permits all.
        causal: A query sees the keys up to its own position; with more keys than queries the ends are aligned, so
            that one new query sees all that came before it.
        later: How many queries follow the last of these, where they are a part of more.
        first: How many queries came before the first of these, in a decoder that takes a step at a time.

    What follows from these for a number of queries and keys is computed once, for all layers that share a support: the
    tensor `permitted` must not be changed afterwards.
    """

    axes: ClassVar[tuple[str, ...]] = ("batch", "head", "query", "key")

    permitted: Bool[Tensor, "#b #h #q #k"] | None = None
    causal: bool = False
    later: int = 0
    first: int = 0
    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.permitted is None:
            return
        if self.permitted.dtype != torch.bool:
            raise TypeError(f"permitted must be boolean with True = may attend, got {self.permitted.dtype}")
        if self.permitted.dim() != 4:
            raise ValueError(f"permitted must have the axes (b, h, q, k), got shape {tuple(self.permitted.shape)}")

    @classmethod
    def from_key_mask(cls, mask: Bool[Tensor, "b k"], causal: bool = False) -> DenseSupport:
        """True at real keys, False at padding."""
        return cls(permitted=mask[:, None, None, :], causal=causal)

    def mask(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#b #h #q #k"] | None:
        """All restrictions as one mask; None where everything is permitted."""
        if not self.causal or (queries == 1 and not self.later):  # the last position sees all that came before
            return self.permitted
        return once(self._known, "mask", (queries, keys, device), lambda: self._causal_mask(queries, keys, device))

    def sees(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#b #h #q 1"] | None:
        """Which queries see a key; None where it is known that all do."""
        if self.permitted is None and (not self.causal or keys > queries + self.later - 1):
            return None
        return once(
            self._known, "sees", (queries, keys, device), lambda: _unless_all(self._sees(queries, keys, device))
        )

    def is_plain(self, queries: int, keys: int) -> bool:
        """Whether nothing is forbidden, or just what comes later in one square."""
        return self.permitted is None and (not self.causal or (queries == keys and not self.later))

    def of_queries(self, rows: slice, queries: int) -> DenseSupport:
        """The support of some of the queries, with all keys."""
        start, stop, _ = rows.indices(queries)
        has_rows = self.permitted is not None and self.permitted.shape[2] > 1
        permitted = self.permitted[:, :, start:stop] if has_rows and self.permitted is not None else self.permitted
        return DenseSupport(permitted, self.causal, self.later + queries - stop, self.first + start)

    def at_step(self, first: int) -> DenseSupport:
        """The same for queries of which so many came before; what is known of it holds for them too."""
        if first == self.first:
            return self
        later = replace(self, first=first)
        object.__setattr__(later, "_known", self._known)
        return later

    def of_last_keys(self, count: int) -> DenseSupport:
        """Of so many keys at the end."""
        if self.permitted is None or self.permitted.shape[3] == 1:
            return self
        return replace(self, permitted=self.permitted[..., self.permitted.shape[3] - count :])

    def reorder(self, beams: Int[Tensor, " beams"]) -> DenseSupport:
        """Of the hypotheses that survive, in their order."""
        if self.permitted is None or self.permitted.shape[0] == 1:
            return self
        return replace(self, permitted=self.permitted.index_select(0, beams))

    def _causal_mask(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#b #h q k"]:
        before = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries - self.later)
        return before[None, None] if self.permitted is None else self.permitted & before

    def _sees(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#b #h #q 1"]:
        if self.causal and keys and (self.permitted is None or self.permitted.shape[2] == 1):
            # Of a mask of keys alone a causal query sees one if there is any up to its own: no q x k mask is made.
            at = torch.arange(keys - queries - self.later, keys - self.later, device=device)
            if self.permitted is None:
                return (at >= 0)[None, None, :, None]
            up_to = self.permitted.expand(-1, -1, -1, keys).squeeze(2).cumsum(-1) > 0
            return (up_to[..., at.clamp(min=0)] & (at >= 0)).unsqueeze(-1)
        mask = self.mask(queries, keys, device)
        assert mask is not None
        return mask.any(-1, keepdim=True)

    def _unseen(self, x: Float[Tensor, "b h k d"]) -> Tensor | tuple[Tensor, ...] | None:
        """Which keys no query sees: a mask, or indices where these can be had, in a third of the time of a mask."""
        assert self.permitted is not None
        queries = self.permitted.shape[-2]
        # One row for all queries: the last of them sees every key, causal or not.
        mask = self.permitted if queries == 1 else self.mask(queries, x.shape[2], x.device)
        assert mask is not None
        seen = mask.any(-2)
        if seen.shape[1] not in (1, x.shape[1]):  # a key of a group is seen if one of its queries' heads sees it
            groups = x.shape[1]
            seen = seen.view(len(seen), groups, seen.shape[1] // groups, *seen.shape[2:]).any(2)
        if not can_be_read(seen):
            return ~seen.unsqueeze(-1)
        return None if seen.all() else (~seen).expand(x.shape[:3]).nonzero(as_tuple=True)

    def mask_of(self, pairs: Float[Tensor, "b h q k"]) -> Bool[Tensor, "#b #h #q #k"] | None:
        return self.mask(pairs.shape[-2], pairs.shape[-1], pairs.device)

    def zeros(self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b h k d"]) -> Float[Tensor, "b h q k"]:
        return query.new_zeros(*query.shape[:3], key.shape[2])

    def dot(self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b h k d"]) -> Float[Tensor, "b h q k"]:
        # As fused kernels do, also under autocast: sums of half precision's products go beyond its largest number.
        with torch.autocast(query.device.type, enabled=False):
            return at_least_single(query) @ key.to(wide(query)).transpose(-2, -1)

    def at_query(self, x: Float[Tensor, "b h q *d"]) -> Float[Tensor, "b h q 1 *d"]:
        return x.unsqueeze(3)

    def at_key(self, x: Float[Tensor, "b h k *d"]) -> Float[Tensor, "b h 1 k *d"]:
        return x.unsqueeze(2)

    def of_key(self, function: KeyFunction, key: Float[Tensor, "b h k d"]) -> Shaped[Tensor, "..."]:
        return self.at_key(function(key))

    def per_head(self, parameter: Float[Tensor, "h d"]) -> Float[Tensor, "h 1 d"]:
        return parameter.unsqueeze(1)

    def project(self, hidden: Float[Tensor, "b h q k d"], parameter: Float[Tensor, "h d"]) -> Float[Tensor, "b h q k"]:
        if len(parameter) == 1:  # in half the time of a product for each of several heads
            return hidden @ parameter[0]
        return torch.einsum("bhqkd,hd->bhqk", hidden, parameter)

    def softmax(self, scores: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        return self.by_row(masked_softmax, scores)

    def by_row(self, function: RowFunction, scores: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        return function(scores, self.mask_of(scores))

    def combine(self, weights: Float[Tensor, "b h q k"], value: Float[Tensor, "b h k v"]) -> Float[Tensor, "b h q v"]:
        return weights.to(value.dtype) @ value

    def clean(self, x: Float[Tensor, "b h k d"]) -> Float[Tensor, "b h k d"]:
        if self.permitted is None:
            return x
        unseen = once(self._known, f"unseen of {x.shape[1]}", (x.shape[:3], x.device), lambda: self._unseen(x))
        if unseen is None:
            return x
        if isinstance(unseen, Tensor):
            return x.masked_fill(unseen, 0.0)
        return x.index_put(unseen, x.new_zeros(()))

    def clean_queries(self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k d"]) -> Float[Tensor, "b h q d"]:
        sees = self.sees(query.shape[2], key.shape[2], query.device)
        return query if sees is None else torch.where(sees, query, query.new_zeros(()))

    def offsets(self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k d"]) -> Int[Tensor, "1 1 q k"]:
        queries, keys = query.shape[2], key.shape[2]
        at = torch.arange(keys - queries - self.later, keys - self.later, device=query.device)
        return (torch.arange(keys, device=query.device) - at.unsqueeze(1))[None, None]

    def pick(self, x: Float[Tensor, "b h q m"], index: Int[Tensor, "#b #h q k"]) -> Float[Tensor, "b h q k"]:
        return x.gather(-1, index.expand(*x.shape[:2], -1, -1))

    def bin(
        self, pairs: Float[Tensor, "b h q k"], index: Int[Tensor, "#b #h q k"], bins: int
    ) -> Float[Tensor, "b h q m"]:
        return pairs.new_zeros(*pairs.shape[:3], bins).scatter_add(-1, index.expand_as(pairs), pairs)

    def to_dense(self, pairs: Float[Tensor, "b h q k"], queries: int, keys: int) -> Float[Tensor, "b h q k"]:
        return pairs


@dataclass(frozen=True, eq=False)
class EdgeSupport:
    """The edges of a graph: query `rows[e]` (the target) may attend to key `columns[e]` (the source).

    Edges are kept sorted by target; `order` says where each stood in the list they were made from, -1 for a self-loop
    that was added here. `key_degrees` is what `degrees` is for queries, where keys are queries of the same graph.
    """

    axes: ClassVar[tuple[str, ...]] = ("edge", "head")

    pattern: SparsePattern
    order: Int[Tensor, " e"]
    key_degrees: Int[Tensor, " k"] | None = None
    _known: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_edges(
        cls, edges: Int[Tensor, "2 e"], num_queries: int, num_keys: int | None = None, *, self_loops: bool = False
    ) -> EdgeSupport:
        """From (source, target) pairs as PyG writes them. `self_loops` gives every node exactly one of its own."""
        source, target = edges
        order = torch.arange(len(source), device=edges.device)
        if self_loops:
            if num_keys not in (None, num_queries):
                raise ValueError("self-loops need the same nodes on both sides")
            kept = source != target
            nodes = torch.arange(num_queries, device=edges.device)
            source, target = torch.cat([source[kept], nodes]), torch.cat([target[kept], nodes])
            order = torch.cat([order[kept], order.new_full((num_queries,), -1)])
        shape = num_queries, num_queries if num_keys is None else num_keys
        pattern, moved = SparsePattern.from_entries(target, source, shape)
        is_one_graph = num_keys in (None, num_queries)
        return cls(pattern, order[moved], key_degrees=pattern.row_starts.diff() if is_one_graph else None)

    @classmethod
    def from_groups(cls, groups: Int[Tensor, " n"], count: int) -> EdgeSupport:
        """From the group of each row, 0 to count - 1: a query for each group, which sees the rows of its own.

        Rows that stand group by group are edges in the same order.
        """
        rows = torch.arange(len(groups), device=groups.device)
        return cls.from_edges(torch.stack([rows, groups]), count, len(groups))

    def repeated(self, times: int) -> EdgeSupport:
        """Each query so many times, one after another: query number c of q is q * times + c, and so are edges."""
        if times == 1:
            return self
        return once(self._known, f"repeated {times} times", (self.order.device,), lambda: self._repeated(times))

    def _repeated(self, times: int) -> EdgeSupport:
        copy = torch.arange(times, device=self.order.device).repeat(len(self.order))
        source, target, order = (x.long().repeat_interleave(times) for x in (self.source, self.target, self.order))
        queries, keys = self.pattern.shape
        found = EdgeSupport.from_edges(torch.stack([source, target * times + copy]), queries * times, keys)
        order = torch.where(order < 0, order, order * times + copy)
        return EdgeSupport(found.pattern, order[found.order])

    @property
    def source(self) -> Int[Tensor, " e"]:
        return self.pattern.columns

    @property
    def target(self) -> Int[Tensor, " e"]:
        return self.pattern.rows

    @property
    def degrees(self) -> Int[Tensor, " q"]:
        """How many keys each query may attend to."""
        return self.pattern.row_starts.diff()

    def to(self, device: torch.device | str, **options: Any) -> EdgeSupport:
        degrees = None if self.key_degrees is None else self.key_degrees.to(device=device, **options)
        return EdgeSupport(self.pattern.to(device, **options), self.order.to(device=device, **options), degrees)

    def zeros(self, query: Float[Tensor, "q h d"], key: Float[Tensor, "k h d"]) -> Float[Tensor, "e h"]:
        return query.new_zeros(len(self.pattern), query.shape[1])

    def dot(self, query: Float[Tensor, "q h d"], key: Float[Tensor, "k h d"]) -> Float[Tensor, "e h"]:
        return sparse.dot(at_least_single(query), key.to(wide(query)), self.pattern)

    def at_query(self, x: Float[Tensor, "q h *d"]) -> Float[Tensor, "e h *d"]:
        return sparse.at_rows(x, self.pattern)

    def at_key(self, x: Float[Tensor, "k h *d"]) -> Float[Tensor, "e h *d"]:
        return sparse.at_columns(x, self.pattern)

    def of_key(self, function: KeyFunction, key: Float[Tensor, "k h d"]) -> Shaped[Tensor, "..."]:
        return self.at_key(function(key))

    def per_head(self, parameter: Float[Tensor, "h d"]) -> Float[Tensor, "h d"]:
        return parameter

    def project(self, hidden: Float[Tensor, "e h d"], parameter: Float[Tensor, "h d"]) -> Float[Tensor, "e h"]:
        return (hidden * parameter).sum(-1)

    def softmax(self, scores: Float[Tensor, "e h"]) -> Float[Tensor, "e h"]:
        return sparse.row_softmax(scores, self.pattern)

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # how long rows are is read off, which no graph can do
    def by_row(self, function: RowFunction, scores: Float[Tensor, "e h"]) -> Float[Tensor, "e h"]:
        """Each row among rows of about its length: one query that sees all keys does not make all rows as long."""
        rows = once(self._known, "rows", (scores.device,), lambda: _Rows.of(self.pattern))
        padded = scores.new_zeros(rows.slots, scores.shape[1]).index_copy(0, rows.places, scores)
        pieces = torch.split_with_sizes(padded, [mask.numel() for mask in rows.permitted])
        found = [
            function(piece.view(*mask.shape, -1).permute(2, 0, 1), mask.unsqueeze(0)).permute(1, 2, 0).flatten(0, 1)
            for piece, mask in zip(pieces, rows.permitted, strict=True)
        ]
        return torch.cat(found).index_select(0, rows.places) if found else function(scores.t(), None).t()

    def combine(self, weights: Float[Tensor, "e h"], value: Float[Tensor, "k h v"]) -> Float[Tensor, "q h v"]:
        return sparse.product(weights, value, self.pattern)

    def clean(self, x: Float[Tensor, "k h d"]) -> Float[Tensor, "k h d"]:
        """What has no edge is never attended to, but would reach the gradients of parameters."""
        return self._cleaned(x, "seen", self.pattern.column_starts)

    def clean_queries(self, query: Float[Tensor, "q h d"], key: Float[Tensor, "k h d"]) -> Float[Tensor, "q h d"]:
        return self._cleaned(query, "sees", self.pattern.row_starts)

    def _cleaned(self, x: Float[Tensor, "n h d"], name: str, starts: Int[Tensor, " m"]) -> Float[Tensor, "n h d"]:
        has_edges = once(self._known, name, (starts.device,), lambda: _unless_all(starts.diff() > 0))
        return x if has_edges is None else torch.where(has_edges[:, None, None], x, x.new_zeros(()))

    def offsets(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> Int[Tensor, "..."]:
        raise ValueError("the nodes of a graph have no order: positions work on sequences")

    def pick(self, x: Float[Tensor, "..."], index: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
        raise ValueError("the nodes of a graph have no order: positions work on sequences")

    def bin(self, pairs: Float[Tensor, "..."], index: Int[Tensor, "..."], bins: int) -> Float[Tensor, "..."]:
        raise ValueError("the nodes of a graph have no order: positions work on sequences")

    def to_dense(self, pairs: Float[Tensor, "e h"], queries: int, keys: int) -> Float[Tensor, "1 h q k"]:
        """Edges that join the same two nodes add up."""
        dense = pairs.new_zeros(queries * keys, pairs.shape[1])
        dense = dense.index_add(0, self.target.long() * keys + self.source.long(), pairs)
        return dense.view(queries, keys, -1).permute(2, 0, 1).unsqueeze(0)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The entries of a pattern as rows, in groups whose lengths differ by less than a factor of two, padded.

    Args:
        places: Where each entry stands among the slots of all groups.
        permitted: Of each group, (rows, longest): which slots have an entry.
    """

    places: Int[Tensor, " e"]
    permitted: tuple[Bool[Tensor, "_rows _longest"], ...]

    @classmethod
    def of(cls, pattern: SparsePattern) -> _Rows:
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


def once(known: dict[str, Any], name: str, sizes: tuple[Any, ...], make: Callable[[], _Known]) -> _Known:
    """What a support knows for these sizes, computed if it was not before."""
    if not may_be_kept():
        return make()
    found = known.get(name)
    if found is None or found[0] != sizes:
        found = known[name] = (sizes, for_later(make))
    return found[1]


def _unless_all(x: Bool[Tensor, "..."]) -> Bool[Tensor, "..."] | None:
    """None where all are true, if that can be known."""
    return None if can_be_read(x) and x.all() else x


def can_be_read(x: Shaped[Tensor, "..."]) -> bool:
    """Whether what is done may depend on the numbers, without a wait for a device or a break in a compiled graph."""
    return type(x) is Tensor and x.device.type == "cpu" and not torch.compiler.is_compiling()


def masked_softmax(scores: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None) -> Float[Tensor, "... k"]:
    """Over the permitted keys, in at least fp32; zeros in a row that permits none, or whose scores are all -inf."""
    scores = at_least_single(scores)
    if permitted is not None:
        scores = scores.masked_fill(~permitted, -torch.inf)
    # softmax, with zeros for a row of -inf, in the gradient too
    return torch.ops.aten._safe_softmax(scores, -1)  # type: ignore[no-any-return]
