"""Relative positions, which change attention by the distance between query and key.

A position belongs to a site (`Attention.set_position`, `MultiheadAttention(position=...)`). All positions here depend
on the offset of a key from its query only, so shifting both changes nothing. Rotary positions are in `rotary.py`,
embeddings that are added to inputs in `embeddings.py`.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention.kernels.dtypes import accumulation_dtype, upcast
from zoo.attention.mechanism import Position, Traits
from zoo.attention.positions.embeddings import sinusoid
from zoo.attention.supports.support import Support
from zoo.types import NonNegativeInt, PositiveInt, validate_ranges


@validate_ranges
class ALiBi(Position):
    """Adds -m_h |i - j| to the score, with a fixed slope m_h for each head (Press et al. 2022, section 3).

    Slopes are 2^(-8h/H) if H is a power of two. For other H, as in the authors' code, they are the slopes of the next
    smaller power, then every second slope of the next larger one. Under a causal support this is the paper's bias,
    otherwise its symmetric form.

    Cost: O(pairs)

    Args:
        heads: Number of heads, H.
    """

    def __init__(self, *, heads: PositiveInt) -> None:
        super().__init__()
        self.heads = heads

    def slopes(self, like: Float[Tensor, "..."]) -> Float[Tensor, " {self.heads}"]:
        """Returns m_h in the precision and on the device of a tensor."""
        power = 1 << (self.heads.bit_length() - 1)
        exponents = [8.0 * (head + 1) / power for head in range(power)]
        exponents += [4.0 * (2 * head + 1) / power for head in range(self.heads - power)]
        return torch.exp2(-torch.tensor(exponents, dtype=like.dtype)).to(like.device)

    def bias(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: Support, scale: float
    ) -> Float[Tensor, "..."]:
        distance = support.relative_positions(query, key).abs().to(accumulation_dtype(query))
        return -distance * self.slopes(distance).view(-1, *[1] * (distance.dim() - 2))


@validate_ranges
class T5Bias(Position):
    """Adds a learned bias for each head and bucket of distances to the score (Raffel et al. 2020, section 2.1).

    Half of the buckets hold one distance each, the others widen logarithmically up to `distance`; all larger distances
    share the last bucket. T5 shares one table between its layers: to do so, give the same object to all of them.

    Cost: O(pairs)

    Args:
        heads: Number of heads.
        buckets: Number of buckets; an even number unless `causal`, half of them for each direction.
        distance: Distance at which the last bucket begins.
        causal: If True, all buckets are for keys before the query.
    """

    def __init__(
        self, *, heads: PositiveInt, buckets: PositiveInt = 32, distance: PositiveInt = 128, causal: bool = False
    ) -> None:
        super().__init__()
        one_way = buckets if causal else buckets // 2
        if one_way < 2 or (buckets % 2 and not causal):
            raise ValueError(f"each direction needs at least 2 buckets, and both the same number, got {buckets}")
        if distance <= one_way // 2:
            raise ValueError(f"distance must be above the {one_way // 2} that have a bucket each, got {distance}")
        self.one_way, self.distance, self.causal = one_way, distance, causal
        self.table = nn.Parameter(torch.empty(heads, buckets))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def bucket(self, offsets: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """Returns the bucket of each offset of a key from its query."""
        exact = self.one_way // 2
        away = (-offsets).clamp(min=0) if self.causal else offsets.abs()
        # single precision, in which the tables of pretrained models were indexed
        ratio = (away.clamp(min=1).float() / exact).log() / math.log(self.distance / exact)
        wide = (exact + (ratio * (self.one_way - exact)).long()).clamp(max=self.one_way - 1)
        bucket = torch.where(away < exact, away, wide)
        return bucket if self.causal else bucket + self.one_way * (offsets > 0)

    def bias(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: Support, scale: float
    ) -> Float[Tensor, "..."]:
        distinct, index = _distinct(query, key, support)
        rows = self.table[None, :, None].expand(-1, -1, query.shape[2], -1)
        return support.gather_rows(rows, self.bucket(distinct)[index])


@validate_ranges
class RelativeBias2D(Position):
    """Adds a learned bias for each head and offset on a grid to the score (Liu et al. 2021, eq. 4: B).

    Queries and keys are the cells of the whole grid, in row-major order.

    Cost: O(pairs)

    Args:
        heads: Number of heads.
        grid: Number of rows and columns.
    """

    def __init__(self, *, heads: PositiveInt, grid: tuple[PositiveInt, PositiveInt]) -> None:
        super().__init__()
        self.grid = grid
        self.table = nn.Parameter(torch.empty(heads, *(2 * side - 1 for side in grid)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.table, std=0.02)

    def bias(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: Support, scale: float
    ) -> Float[Tensor, "..."]:
        (rows, columns), keys, first = self.grid, key.shape[2], support.first_position(query, key)
        if keys != rows * columns:
            raise ValueError(f"a grid of {rows} x {columns} has {rows * columns} cells, got {keys} keys")
        places = torch.arange(first, first + query.shape[2], dtype=accumulation_dtype(query), device=query.device)
        of = support.gather_queries(places[None, None]).long()
        to = (of + support.relative_positions(query, key)).clamp(
            0, keys - 1
        )  # padded slots that are no pair may get any index
        down = of // columns - to // columns + rows - 1
        right = of % columns - to % columns + columns - 1
        index = down * (2 * columns - 1) + right
        if query.shape[2] * self.table.shape[1:].numel() <= _MANY * index.shape[2:].numel():
            of_query = self.table.flatten(1)[None, :, None].expand(-1, -1, query.shape[2], -1)
            return support.gather_rows(of_query, index)
        heads = torch.arange(len(self.table), device=index.device).view(-1, *[1] * (index.dim() - 2))
        return self.table.flatten(1)[heads, index]


@validate_ranges
class Shaw(Position):
    """q · (k_j + a^K_{j-i}) and sum_j w_ij (v_j + a^V_{j-i}) (Shaw et al. 2018, eq. 3 and 4): learned relative vectors.

    Distances are clipped to k (section 3.2), and heads share the vectors (section 3.3). Each query is multiplied with
    all 2k + 1 vectors once, and the products are picked for its pairs, so no vector is stored per pair. The term of the
    values depends on the weights, so no fused kernel can be used.

    Cost: O(pairs + n k d)

    Args:
        dim: Width of one head.
        distance: Largest distance with a vector of its own, k.
    """

    traits = Traits(needs_weights=True)

    def __init__(self, *, dim: PositiveInt, distance: NonNegativeInt = 16) -> None:
        super().__init__()
        self.distance = distance
        self.keys = nn.Parameter(torch.empty(2 * distance + 1, dim))
        self.values = nn.Parameter(torch.empty(2 * distance + 1, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.keys)
        nn.init.xavier_uniform_(self.values)

    def bias(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: Support, scale: float
    ) -> Float[Tensor, "..."]:
        index = self._index(query, key, support)
        return support.gather_rows(_products(query * scale, self.keys.T), index)

    def add_context(
        self,
        context: Float[Tensor, "..."],
        weights: Float[Tensor, "..."],
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        support: Support,
    ) -> Float[Tensor, "..."]:
        binned = support.scatter_add(weights, self._index(query, key, support), len(self.values))
        return context + binned.to(context.dtype) @ self.values

    def _index(self, query: Tensor, key: Tensor, support: Support) -> Tensor:
        return support.relative_positions(query, key).clamp(-self.distance, self.distance) + self.distance


@validate_ranges
class TransformerXL(Position):
    """(q + u) · k_j + (q + v) · W R_{i-j}, with R the sinusoid of i - j (Dai et al. 2019, section 3.3, terms a-d).

    u and v are learned for each head. The products with R are computed once for each distance and picked for each pair.
    If queries have few pairs of many distances (global tokens, BigBird, predicted windows), that would be more work
    than all pairs; the sinusoid of i - j is then split into those of i, which rotates the query, and of j.

    Cost: O(pairs d), times heads where queries have few pairs of many distances

    Args:
        dim: Width of one head.
        heads: Number of heads; the width of the sinusoid is `dim * heads`.
    """

    def __init__(self, *, dim: PositiveInt, heads: PositiveInt) -> None:
        super().__init__()
        if dim * heads % 2:
            raise ValueError(f"sines and cosines come in pairs: dim times heads must be even, got {dim * heads}")
        self.heads = heads
        self.content = nn.Parameter(torch.empty(heads, dim))
        self.place = nn.Parameter(torch.empty(heads, dim))
        self.project = nn.Linear(dim * heads, dim * heads, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.content, std=0.02)
        nn.init.normal_(self.place, std=0.02)
        self.project.reset_parameters()

    def turn_query(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: Support
    ) -> Float[Tensor, "..."]:
        return query + support.broadcast_heads(self.content).to(query.dtype)

    def bias(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: Support, scale: float
    ) -> Float[Tensor, "..."]:
        # turn_query has added u to the query
        with_place = query + support.broadcast_heads(self.place - self.content).to(query.dtype)
        distinct, index = _distinct(query, key, support)
        if len(distinct) * query.shape[2] > _MANY * index.shape[2:].numel():
            return support.dot(*self._apart(with_place * scale, query, key, support))
        waves = sinusoid(-distinct.to(accumulation_dtype(query)), self.project.in_features)
        relative = self.project(waves.to(self.project.weight.dtype)).unflatten(1, (self.heads, -1))
        return support.gather_rows(_products(with_place * scale, relative.permute(1, 2, 0)), index)

    def _apart(
        self,
        with_place: Float[Tensor, "b h q d"],
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "*keys dk"],
        support: Support,
    ) -> tuple[Float[Tensor, "b h q w"], Float[Tensor, "1 1 k w"]]:
        """Returns W^T (q + v) rotated by the position of the query, and the sinusoid of the position of each key."""
        width, dtype = self.project.in_features, accumulation_dtype(query)
        back = _products(with_place, self.project.weight.view(self.heads, -1, width))
        of_sines, of_cosines = back[..., 0::2], back[..., 1::2]
        first = support.first_position(query, key)
        # double precision, which long sequences need; computed once for all heads
        at_query, at_key = (
            sinusoid(torch.arange(start, start + count, dtype=torch.float64, device=query.device), width).to(dtype)
            for start, count in ((first, query.shape[2]), (0, key.shape[2]))
        )
        sine, cosine = at_query[..., 0::2], at_query[..., 1::2]
        turned = torch.stack([of_cosines * sine - of_sines * cosine, of_sines * sine + of_cosines * cosine], -1)
        return turned.flatten(-2), at_key[None, None]


_MANY = 4
"""Number of distances per pair beyond which work on each distance costs more than work on each pair."""


def _distinct(query: Tensor, key: Tensor, support: Support) -> tuple[Int[Tensor, " m"], Int[Tensor, "..."]]:
    """Returns the offsets that may occur, in ascending order, and for each pair the index of its offset among them."""
    offsets = support.relative_positions(query, key)
    low, high = support.range_of(offsets)
    # pairs that do not exist share the last index
    return torch.arange(low, high + 1, device=offsets.device), offsets.clamp(low, high) - low


def _products(query: Float[Tensor, "b h q d"], vectors: Float[Tensor, "*h d m"]) -> Float[Tensor, "b h q m"]:
    """Multiplies queries with vectors in fp32 or wider, the precision of products of queries and keys."""
    with torch.autocast(query.device.type, enabled=False):
        return upcast(query) @ vectors.to(accumulation_dtype(query))
