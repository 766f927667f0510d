"""Local attention of a decoder: each query attends to the 2D + 1 keys around its own center (Luong et al. 2015)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from zoo.attention.initialization import glorot_
from zoo.attention.kernels.dtypes import accumulation_dtype, upcast
from zoo.attention.mechanism import Restriction, Traits, Use
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.support import (
    KeyFunction,
    RowFunction,
    Support,
    mask_of_example,
    mask_of_heads,
)
from zoo.types import NonNegativeInt, PositiveInt, validate_ranges


@dataclass(frozen=True, eq=False)
class LocalSupport(Support):
    """The keys around the center of each query: pairs (b,h,q,s) with s from 0 to 2D. Only these keys are gathered.

    Args:
        center: Center of each query, p; not necessarily a whole number.
        radius: D.
        key_at: Key of each pair.
        permitted: Mask of the pairs that exist: within D of the center, within the sequence, and permitted by its mask.
        keys: Number of keys.
        later: Number of keys after the position of the last query.
    """

    axes: ClassVar[tuple[str, ...]] = ("batch", "head", "query", "near")

    center: Float[Tensor, "#b #h q"]
    radius: int
    key_at: Int[Tensor, "#b #h q s"]
    permitted: Bool[Tensor, "#b #h q s"]
    keys: int
    later: int = 0

    @classmethod
    def from_centers(
        cls, center: Float[Tensor, "#b #h q"], radius: int, keys: int, support: DenseSupport
    ) -> LocalSupport:
        """Makes the support of the keys in [p - D, p + D] that another support permits."""
        near = torch.arange(2 * radius + 1, device=center.device)
        position = (center.detach() - radius).ceil().unsqueeze(-1) + near
        inside = (position >= 0) & (position < keys) & (position <= center.detach().unsqueeze(-1) + radius)
        key_at = position.nan_to_num().clamp(0, max(0, keys - 1)).long()
        queries, start = center.shape[2], keys - center.shape[2] - support.later
        if support.causal:
            inside = inside & (key_at <= torch.arange(start, start + queries, device=center.device).unsqueeze(-1))
        if support.permitted is not None and keys:
            permitted = support.permitted
            batch, heads = (g if n == 1 else n for g, n in zip(permitted.shape[:2], key_at.shape[:2], strict=True))
            at = key_at.expand(batch, heads, -1, -1)
            inside = inside & permitted.expand(batch, heads, queries, keys).gather(-1, at)
        return cls(center, radius, key_at, inside, keys, support.later)

    def zeros(self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k d"]) -> Float[Tensor, "b h q s"]:
        return query.new_zeros(*query.shape[:3], self.key_at.shape[-1])

    def dot(self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "#b #h k d"]) -> Float[Tensor, "b h q s"]:
        near, query = self.gather_keys(key).to(accumulation_dtype(query)), upcast(query)  # as DenseSupport does
        with torch.autocast(query.device.type, enabled=False):
            return (near @ query.unsqueeze(-1)).squeeze(-1)

    def gather_queries(self, x: Float[Tensor, "b h q *d"]) -> Float[Tensor, "b h q 1 *d"]:
        return x.unsqueeze(3)

    def gather_keys(self, x: Float[Tensor, "_b _h k *d"]) -> Float[Tensor, "b h q s *d"]:
        """Returns the key of each pair, and zeros where there is no pair, even if a key there is NaN."""
        batch, heads = (o if n == 1 else n for n, o in zip(x.shape[:2], self.key_at.shape[:2], strict=True))
        shape = batch, heads, *self.key_at.shape[2:], *x.shape[3:]
        if not self.keys:
            return x.new_zeros(shape)
        rows = torch.arange(x.shape[0] * x.shape[1], device=x.device).reshape(x.shape[0], x.shape[1], 1, 1)
        at = rows * self.keys + self.key_at
        near = x.flatten(0, 2).index_select(0, at.flatten()).reshape(shape)
        exists = self.permitted.reshape(*self.permitted.shape, *[1] * (x.dim() - 3))
        return torch.where(exists, near, near.new_zeros(()))

    def map_keys(self, function: KeyFunction, key: Float[Tensor, "b h k d"]) -> Shaped[Tensor, "..."]:
        """Applies the function to the gathered keys, once for each query, because all other keys may be NaN."""
        near = self.gather_keys(key)
        mapped = function(near.flatten(2, 3))
        return mapped.view(*near.shape[:4], *mapped.shape[3:])

    def dot_parameter(
        self, hidden: Float[Tensor, "b h q s d"], parameter: Float[Tensor, "h d"]
    ) -> Float[Tensor, "b h q s"]:
        return torch.einsum("bhqsd,hd->bhqs", hidden, parameter)

    def apply_per_query(self, function: RowFunction, scores: Float[Tensor, "b h q s"]) -> Float[Tensor, "b h q s"]:
        return function(scores, self.permitted)

    def combine(self, weights: Float[Tensor, "b h q s"], value: Float[Tensor, "b h k v"]) -> Float[Tensor, "b h q v"]:
        return (weights.to(value.dtype).unsqueeze(-2) @ self.gather_keys(value)).squeeze(-2)

    def zero_masked(self, x: Float[Tensor, "b g k d"]) -> Float[Tensor, "b g k d"]:
        return x  # `gather_keys` reads nothing that is forbidden

    def zero_blind_queries(
        self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "*keys dk"]
    ) -> Float[Tensor, "b h q d"]:
        return torch.where(self.permitted.any(-1, keepdim=True), query, query.new_zeros(()))

    def relative_positions(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]
    ) -> Int[Tensor, "#b #h q s"]:
        queries = self.key_at.shape[2]
        start = self.keys - queries - self.later
        at = torch.arange(start, start + queries, device=self.key_at.device)
        return (self.key_at - at.unsqueeze(-1)).masked_fill(~self.permitted, 0)

    def gather_rows(self, x: Float[Tensor, "#b #h q m"], index: Int[Tensor, "#b #h q s"]) -> Float[Tensor, "#b #h q s"]:
        batch, heads = (i if n == 1 else n for n, i in zip(x.shape[:2], index.shape[:2], strict=True))
        return x.expand(batch, heads, -1, -1).gather(-1, index.expand(batch, heads, -1, -1))

    def scatter_add(
        self, pairs: Float[Tensor, "b h q s"], index: Int[Tensor, "#b #h q s"], bins: int
    ) -> Float[Tensor, "b h q m"]:
        return pairs.new_zeros(*pairs.shape[:3], bins).scatter_add(-1, index.expand_as(pairs), pairs)

    def sizes(self, pairs: Shaped[Tensor, "b h q s"]) -> tuple[int, int]:
        return self.key_at.shape[2], self.keys

    def exists(self, pairs: Shaped[Tensor, "b h q s"]) -> Bool[Tensor, "#b #h q s"]:
        return self.permitted

    def sum_per_query(self, pairs: Float[Tensor, "b h q s"]) -> Float[Tensor, "b h q"]:
        return pairs.sum(-1)

    def to_dense(self, pairs: Float[Tensor, "b h q s"], queries: int, keys: int) -> Float[Tensor, "b h q k"]:
        existing = torch.where(self.permitted, pairs, pairs.new_zeros(()))
        dense = pairs.new_zeros(*pairs.shape[:3], keys)
        return dense.scatter_add(-1, self.key_at.expand_as(pairs), existing) if keys else dense

    def select_example(self, index: int) -> LocalSupport:
        return self._each(lambda x: mask_of_example(x, index))

    def select_heads(self, heads: Sequence[int] | None) -> LocalSupport:
        if heads is None and self.key_at.shape[1] > 1:
            raise ValueError("each head attends to keys of its own; label all, with heads='mean'")
        return self._each(lambda x: mask_of_heads(x, heads))

    def _each(self, change: Callable[[Tensor], Tensor]) -> LocalSupport:
        """Returns the support of some examples or heads."""
        return replace(self, center=change(self.center), key_at=change(self.key_at), permitted=change(self.permitted))


@validate_ranges
class LocalM(Restriction):
    """Attends to the keys around p_t = t: assumes a monotonic alignment (Luong et al. 2015, section 3.2, local-m).

    A decoder that computes step by step gives the number of earlier steps, `DenseSupport(first=t)`.

    Cost: O(queries radius)

    Args:
        radius: Number of keys on each side, D (10 in the paper).
    """

    traits = Traits(layouts=(DenseSupport,), output_layout=LocalSupport, content_based=False)

    def __init__(self, *, radius: NonNegativeInt = 10) -> None:
        super().__init__()
        self.radius = radius

    def forward(
        self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k e"], support: DenseSupport
    ) -> LocalSupport:
        steps = torch.arange(query.shape[2], device=query.device) + support.first
        return LocalSupport.from_centers(
            steps.to(accumulation_dtype(query))[None, None], self.radius, key.shape[2], support
        )

    def extra_repr(self) -> str:
        return f"radius={self.radius}"


@validate_ranges
class LocalP(Restriction):
    """Attends to the keys around p_t = S sigmoid(v · tanh(W q_t)), S the source length (Luong et al. 2015, local-p).

    See eq. 9. Use it with the normalizer `Gaussian`: W and v get their gradient only through it. S is the number of
    keys of an example that any query may see; padding must be at the end. Each head predicts its own position.

    Cost: O(queries (radius + d^2))

    Args:
        dim: Width of one head.
        heads: Number of heads.
        radius: Number of keys on each side, D (10 in the paper).
    """

    traits = Traits(
        layouts=(DenseSupport,),
        output_layout=LocalSupport,
        unsupported={
            Use.CAUSAL: "predicts a position in the whole source, whose length is unknown in causal attention",
        },
    )

    def __init__(self, *, dim: PositiveInt, heads: PositiveInt, radius: PositiveInt = 10) -> None:
        super().__init__()
        self.radius = radius
        self.weight = nn.Parameter(torch.empty(heads, dim, dim))
        self.vector = nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_(self.weight)
        glorot_(self.vector)

    def forward(
        self, query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k e"], support: DenseSupport
    ) -> LocalSupport:
        hidden = torch.tanh(torch.einsum("bhqd,hed->bhqe", support.zero_blind_queries(query, key), self.weight))
        logit = torch.einsum("bhqe,he->bhq", hidden, self.vector)
        # in half precision the rounding of the sigmoid, times a length, would be an error of many keys
        center = _length(key, support) * torch.sigmoid(upcast(logit))
        return LocalSupport.from_centers(center, self.radius, key.shape[2], support)

    def extra_repr(self) -> str:
        return f"radius={self.radius}"


def _length(key: Tensor, support: DenseSupport) -> Tensor | int:
    if support.permitted is None:
        return key.shape[2]
    is_seen = support.permitted.any(-2)
    return is_seen.expand(-1, -1, key.shape[2]).sum(-1, keepdim=True)
