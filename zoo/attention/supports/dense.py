"""Supports that store every pair of query and key, for sequences, patches and sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from zoo.attention.kernels.cache import cache_on, is_eager_cpu, none_if_all
from zoo.attention.kernels.dtypes import accumulation_dtype, upcast
from zoo.attention.supports.support import RowFunction, Support, mask_of_example, mask_of_heads


@dataclass(frozen=True, eq=False)
class DenseSupport(Support):
    """All pairs of queries and keys, except those that a mask or causality forbids.

    Masks are computed once and cached for all layers that share a support, so the tensor `permitted` must not be
    changed afterwards.

    Args:
        permitted: Mask that broadcasts to (b,h,q,k), True = may attend. Default: all pairs.
        causal: If True, a query sees the keys up to its own position. The last query stands at the last key, so a
            single new query sees all earlier keys.
        later: Number of queries of the sequence that follow the last of these.
        first: Number of queries before the first of these, in a decoder that computes step by step.
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
        """Makes the support of a padded batch from a mask that is True at real keys and False at padding."""
        return cls(permitted=mask[:, None, None, :], causal=causal)

    def check(self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], value: Float[Tensor, "..."]) -> None:
        super().check(query, key, value)
        if self.permitted is None:
            return
        sizes = (*query.shape[:3], key.shape[2])
        for axis, size, mask_size in zip("bhqk", sizes, self.permitted.shape, strict=True):
            if mask_size not in (1, size):
                raise ValueError(
                    f"the mask has {axis}={mask_size} where queries and keys have {axis}={size}; it must be that or 1"
                )

    def mask(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#b #h #q #k"] | None:
        """Returns all restrictions as one mask; None if everything is permitted."""
        if not self.causal or (queries == 1 and not self.later):  # the last position sees all earlier ones
            return self.permitted
        return cache_on(self._known, "mask", (queries, keys, device), lambda: self._causal_mask(queries, keys, device))

    def sees(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#b #h #q 1"] | None:
        """Returns a mask of the queries that see a key; None if all of them are known to."""
        if self.permitted is None and (not self.causal or keys > queries + self.later - 1):
            return None
        return cache_on(
            self._known, "sees", (queries, keys, device), lambda: none_if_all(self._sees(queries, keys, device))
        )

    def is_plain(self, queries: int, keys: int) -> bool:
        """Returns True if there is no mask, and causality at most for as many queries as keys."""
        return self.permitted is None and (not self.causal or (queries == keys and not self.later))

    def select_queries(self, rows: slice, queries: int) -> DenseSupport:
        """Returns the support of some of the queries, with all keys."""
        start, stop, _ = rows.indices(queries)
        has_rows = self.permitted is not None and self.permitted.shape[2] > 1
        permitted = self.permitted[:, :, start:stop] if has_rows and self.permitted is not None else self.permitted
        return DenseSupport(permitted, self.causal, self.later + queries - stop, self.first + start)

    def advance_to(self, first: int) -> DenseSupport:
        """Returns the support for queries that follow `first` earlier ones; it shares the cached masks."""
        if first == self.first:
            return self
        later = replace(self, first=first)
        object.__setattr__(later, "_known", self._known)
        return later

    def select_last_keys(self, count: int) -> DenseSupport:
        """Returns the support of the last `count` keys."""
        if self.permitted is None or self.permitted.shape[3] == 1:
            return self
        return replace(self, permitted=self.permitted[..., self.permitted.shape[3] - count :])

    def reorder(self, beams: Int[Tensor, " beams"]) -> DenseSupport:
        """Returns the support of the selected hypotheses, in the order of their indices `beams`."""
        if self.permitted is None or self.permitted.shape[0] == 1:
            return self
        return replace(self, permitted=self.permitted.index_select(0, beams))

    def mask_of(self, pairs: Float[Tensor, "b h q k"]) -> Bool[Tensor, "#b #h #q #k"] | None:
        return self.mask(pairs.shape[-2], pairs.shape[-1], pairs.device)

    def zeros(self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b h k d"]) -> Float[Tensor, "b h q k"]:
        return query.new_zeros(*query.shape[:3], key.shape[2])

    def dot(self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b h k d"]) -> Float[Tensor, "b h q k"]:
        # In fp32, as in fused kernels, also under autocast: in half precision the sums of products may overflow.
        with torch.autocast(query.device.type, enabled=False):
            return upcast(query) @ key.to(accumulation_dtype(query)).transpose(-2, -1)

    def gather_queries(self, x: Float[Tensor, "b h q *d"]) -> Float[Tensor, "b h q 1 *d"]:
        return x.unsqueeze(3)

    def gather_keys(self, x: Float[Tensor, "b h k *d"]) -> Float[Tensor, "b h 1 k *d"]:
        return x.unsqueeze(2)

    def dot_parameter(
        self, hidden: Float[Tensor, "b h q k d"], parameter: Float[Tensor, "h d"]
    ) -> Float[Tensor, "b h q k"]:
        if len(parameter) == 1:  # takes half the time of einsum
            return hidden @ parameter[0]
        return torch.einsum("bhqkd,hd->bhqk", hidden, parameter)

    def apply_per_query(self, function: RowFunction, scores: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        return function(scores, self.mask_of(scores))

    def combine(self, weights: Float[Tensor, "b h q k"], value: Float[Tensor, "b h k v"]) -> Float[Tensor, "b h q v"]:
        return weights.to(value.dtype) @ value

    def zero_masked(self, x: Float[Tensor, "b h k d"]) -> Float[Tensor, "b h k d"]:
        if self.permitted is None:
            return x
        unseen = cache_on(self._known, f"unseen of {x.shape[1]}", (x.shape[:3], x.device), lambda: self._unseen(x))
        if unseen is None:
            return x
        if isinstance(unseen, Tensor):
            return x.masked_fill(unseen, 0.0)
        return x.index_put(unseen, x.new_zeros(()))

    def zero_blind_queries(
        self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k d"]
    ) -> Float[Tensor, "b h q d"]:
        sees = self.sees(query.shape[2], key.shape[2], query.device)
        return query if sees is None else torch.where(sees, query, query.new_zeros(()))

    def relative_positions(
        self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k d"]
    ) -> Int[Tensor, "1 1 q k"]:
        queries, keys = query.shape[2], key.shape[2]
        at = torch.arange(keys - queries - self.later, keys - self.later, device=query.device)
        return (torch.arange(keys, device=query.device) - at.unsqueeze(1))[None, None]

    def range_of(self, offsets: Int[Tensor, "1 1 q k"]) -> tuple[int, int]:
        """Returns bounds from sizes alone, without waiting for a device; causal pairs have no offset above 0."""
        queries, keys = offsets.shape[2:]
        first = keys - queries - self.later
        low, high = 1 - first - queries, keys - 1 - first
        return low, max(low, min(high, 0) if self.causal else high)

    def gather_rows(self, x: Float[Tensor, "b h q m"], index: Int[Tensor, "#b #h q k"]) -> Float[Tensor, "b h q k"]:
        return x.gather(-1, index.expand(*x.shape[:2], -1, -1))

    def scatter_add(
        self, pairs: Float[Tensor, "b h q k"], index: Int[Tensor, "#b #h q k"], bins: int
    ) -> Float[Tensor, "b h q m"]:
        return pairs.new_zeros(*pairs.shape[:3], bins).scatter_add(-1, index.expand_as(pairs), pairs)

    def to_dense(self, pairs: Float[Tensor, "b h q k"], queries: int, keys: int) -> Float[Tensor, "b h q k"]:
        return pairs

    def sizes(self, pairs: Shaped[Tensor, "b h q k"]) -> tuple[int, int]:
        return pairs.shape[2], pairs.shape[3]

    def exists(self, pairs: Shaped[Tensor, "b h q k"]) -> Bool[Tensor, "#b #h #q #k"]:
        mask = self.mask_of(pairs)
        return torch.ones((1,) * 4, dtype=torch.bool, device=pairs.device) if mask is None else mask

    def sum_per_query(self, pairs: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q"]:
        return pairs.sum(-1)

    def dense_mask(self, pairs: Float[Tensor, "b h q k"]) -> Bool[Tensor, "#b #h #q #k"]:
        return self.exists(pairs)

    def select_example(self, index: int) -> DenseSupport:
        if self.permitted is None or len(self.permitted) == 1:
            return self
        return replace(self, permitted=mask_of_example(self.permitted, index))

    def select_heads(self, heads: Sequence[int] | None) -> DenseSupport:
        if self.permitted is None or self.permitted.shape[1] == 1:
            return self
        return replace(self, permitted=mask_of_heads(self.permitted, heads))

    def _causal_mask(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#b #h q k"]:
        before = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries - self.later)
        return before[None, None] if self.permitted is None else self.permitted & before

    def _sees(self, queries: int, keys: int, device: torch.device) -> Bool[Tensor, "#b #h #q 1"]:
        if self.causal and keys and (self.permitted is None or self.permitted.shape[2] == 1):
            # With a mask of keys, a causal query sees a key if there is any up to its own: no q x k mask is needed.
            at = torch.arange(keys - queries - self.later, keys - self.later, device=device)
            if self.permitted is None:
                return (at >= 0)[None, None, :, None]
            up_to = self.permitted.expand(-1, -1, -1, keys).squeeze(2).cumsum(-1) > 0
            return (up_to[..., at.clamp(min=0)] & (at >= 0)).unsqueeze(-1)
        mask = self.mask(queries, keys, device)
        assert mask is not None
        return mask.any(-1, keepdim=True)

    def _unseen(self, x: Float[Tensor, "b h k d"]) -> Tensor | tuple[Tensor, ...] | None:
        """Returns the keys that no query sees, as a mask, or as indices if they can be read: a third of the time."""
        assert self.permitted is not None
        queries = self.permitted.shape[-2]
        # With one row for all queries, the last query sees every key of the row, causal or not.
        mask = self.permitted if queries == 1 else self.mask(queries, x.shape[2], x.device)
        assert mask is not None
        is_seen = mask.any(-2)
        if is_seen.shape[1] not in (1, x.shape[1]):  # a key head is seen if one of its group of query heads sees it
            groups = x.shape[1]
            is_seen = is_seen.view(len(is_seen), groups, is_seen.shape[1] // groups, *is_seen.shape[2:]).any(2)
        if not is_eager_cpu(is_seen):
            return ~is_seen.unsqueeze(-1)
        return None if is_seen.all() else (~is_seen).expand(x.shape[:3]).nonzero(as_tuple=True)
