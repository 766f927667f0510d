"""Scores: one number s_ij for each query i and key j, which says how much the query has to do with the key.

| score         | s_ij                              | paper                              |
|---------------|-----------------------------------|------------------------------------|
| Dot           | q_i · k_j                         | Luong et al. 2015                  |
| ScaledDot     | q_i · k_j / sqrt(d)               | Vaswani et al. 2017                |
| Additive      | v · tanh(q_i + k_j)               | Bahdanau et al. 2015               |
| General       | q_i · W k_j                       | Luong et al. 2015                  |
| Concat        | v · tanh(W [q_i; k_j])            | Luong et al. 2015                  |
| Cosine        | cos(q_i, k_j) / T                 | Liu et al. 2022                    |
| PositionAware | v · tanh(q_i + k_j + p_(j - i))   | Zhang et al. 2017                  |
| GAT           | LeakyReLU(a_q · q_i + a_k · k_j)  | Velickovic et al. 2018             |
| GATv2         | a · LeakyReLU(q_i + k_j)          | Brody et al. 2022                  |
| Constant      | 0                                 | a model without attention          |

A score is a module `(query, key, support, state) -> s`, one number per pair and head: `support.dot(q, k)` is q_i · k_j
for every pair of the support, `support.gather_queries(q)` and `support.gather_keys(k)` are q_i and k_j for every pair.
Queries and keys are projected once per sequence by the caller (`MultiheadAttention`, a graph layer); a score has only
the parameters of its formula. Computations that depend on keys alone are in `prepare`: `Attention.prepare` calls it on
the projected keys, and `forward` takes the result as `key`. Heads are the second axis of queries and keys in every
layout.

In the costs d is the width of a head, n the number of queries and keys together, and pairs are those of the support.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.attention_state import AttentionState
from zoo.attention.initialization import glorot_
from zoo.attention.kernels.cpu.tanh import tanh_
from zoo.attention.kernels.dtypes import upcast
from zoo.attention.mechanism import PreparedKeys, Score, Traits, Use, check_widths
from zoo.attention.supports.blocks import BlockSupport
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.support import Support
from zoo.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, validate_ranges

_LARGEST_SCALE = 100.0
_SHORTEST = 1e-6


class Dot(Score):
    """q · k (Luong et al. 2015, section 3.1, dot).

    Subclasses are dot products of transformed queries and keys. They override `transform_query`, `prepare` and `scale`,
    and use the same fused kernels.

    Cost: O(pairs d)
    """

    traits = Traits(rotation_invariant=True)

    def transform_query(self, query: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return query

    def forward(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"] | PreparedKeys,
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        query, key = self.transform_query(query), self.unwrap(key)
        check_widths(query, key)
        # s_ij = scale q_i · k_j
        return support.dot(query * self.scale(query.shape[-1]), key)


class ScaledDot(Dot):
    """q · k / sqrt(d) (Vaswani et al. 2017, eq. 1): scores have unit variance at any width.

    Cost: O(pairs d)
    """

    def scale(self, width: int) -> float:
        # s_ij = q_i · k_j / sqrt(d), computed by Dot.forward
        return 1.0 / math.sqrt(width)


@validate_ranges
class Additive(Score):
    """v · tanh(q + k) (Bahdanau et al. 2015, appendix A.1.2; q = W s and k = U h are the caller's projections).

    Cost: O(pairs d)

    Args:
        dim: Width of one head.
        heads: Number of heads.
    """

    def __init__(self, *, dim: PositiveInt, heads: PositiveInt) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_(self.vector)

    def forward(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        check_widths(query, key)
        # s_ij = v · tanh(q_i + k_j)
        hidden = tanh_(support.gather_queries(query) + support.gather_keys(key))
        return support.dot_parameter(hidden, self.vector)


@validate_ranges
class NormalizedAdditive(Additive):
    """g v/|v| · tanh(q + k + b): additive scores between -g sqrt(d) and g sqrt(d) (Raffel et al. 2017, section 2.4).

    Monotonic attention takes a sigmoid of its scores, so that their size matters, not only their differences.

    Cost: O(pairs d)

    Args:
        dim: Width of one head.
        heads: Number of heads, each with its own g.
        gain: The g that training begins with. Default: 1/sqrt(d), as in the paper, whose trainings are long: one number
            grows slowly, and stops become certain when scores are large.
    """

    def __init__(self, *, dim: PositiveInt, heads: PositiveInt, gain: PositiveFloat | None = None) -> None:
        super().__init__(dim=dim, heads=heads)
        self.gain = nn.Parameter(torch.full((heads,), dim**-0.5 if gain is None else float(gain)))
        self.bias = nn.Parameter(torch.zeros(heads, dim))

    def forward(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        check_widths(query, key)
        hidden = tanh_(support.gather_queries(query + support.broadcast_heads(self.bias)) + support.gather_keys(key))
        return support.dot_parameter(hidden, (self.gain.unsqueeze(-1) * _normalize(self.vector)).to(hidden.dtype))


@validate_ranges
class General(Dot):
    """q · W k (Luong et al. 2015, section 3.1, general), with W for each head; W k is computed once per sequence.

    Cost: O(n d^2 + pairs d)

    Args:
        dim: Width of one head.
        heads: Number of heads.
    """

    traits = Traits(rotation_invariant=False)  # W stands between the two rotations

    def __init__(self, *, dim: PositiveInt, heads: PositiveInt) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, dim, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initializes W so that scores of unit-variance queries and keys have variance 1, as with `ScaledDot`."""
        nn.init.normal_(self.weight, std=1.0 / self.weight.shape[-1])

    def prepare(self, key: Float[Tensor, "x g *k d"]) -> PreparedKeys:
        # W k_j; then s_ij = q_i · (W k_j), computed by Dot.forward
        return PreparedKeys(_apply_to_finite(lambda finite_key: _map_heads(finite_key, self.weight), key))


@validate_ranges
class Concat(Score):
    """v · tanh(W [q; k]) (Luong et al. 2015, section 3.1, concat), as W_q q + W_k k, with W_k k once per sequence.

    Cost: O(n d^2 + pairs d)

    Args:
        dim: Width of one head.
        heads: Number of heads.
    """

    def __init__(self, *, dim: PositiveInt, heads: PositiveInt) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, dim, 2 * dim))
        self.vector = nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_(self.weight)
        glorot_(self.vector)

    def prepare(self, key: Float[Tensor, "x g *k d"]) -> PreparedKeys:
        _, of_key = self.weight.chunk(2, -1)
        return PreparedKeys(_apply_to_finite(lambda finite_key: _map_heads(finite_key, of_key), key))

    def forward(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "..."] | PreparedKeys,
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        of_query, _ = self.weight.chunk(2, -1)
        # s_ij = v · tanh(W_q q_i + W_k k_j); the prepared key is W_k k_j
        hidden = tanh_(support.gather_queries(_map_heads(query, of_query)) + support.gather_keys(self.unwrap(key)))
        return support.dot_parameter(hidden, self.vector)


@validate_ranges
class Cosine(Dot):
    """cos(q, k) / T, with a temperature T for each head (Liu et al. 2022, Swin Transformer V2, section 3.2).

    A zero vector has cosine 0 and no gradient.

    Cost: O(pairs d)

    Args:
        heads: Number of heads.
        temperature: Initial value of T, above 0.01. T is clamped at 0.01, where it has no gradient.
        learned: If True, T is a parameter.
    """

    log_scale: Tensor

    def __init__(self, *, heads: PositiveInt, temperature: PositiveFloat = 0.1, learned: bool = True) -> None:
        super().__init__()
        if not 1.0 / _LARGEST_SCALE < temperature < math.inf:
            raise ValueError(f"temperature must be above {1.0 / _LARGEST_SCALE}, got {temperature}")
        log_scale = torch.full((heads,), -math.log(temperature))
        if learned:
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale)

    def prepare(self, key: Float[Tensor, "x h *k d"]) -> PreparedKeys:
        return PreparedKeys(_apply_to_finite(_normalize, key).to(key.dtype))

    def transform_query(self, query: Float[Tensor, "x h *q d"]) -> Float[Tensor, "x h *q d"]:
        scale = self.log_scale.clamp(max=math.log(_LARGEST_SCALE)).exp()
        return (_normalize(query) * scale.view(-1, *[1] * (query.dim() - 2))).to(query.dtype)


@validate_ranges
class PositionAware(Score):
    """v · tanh(q + k + p), where p is learned for each distance from the query to the key.

    The position is inside the tanh, where it interacts with query and key, and is not a bias of the score. Positions in
    Zhang et al. 2017 (Position-aware Attention and Supervised Data Improve Slot Filling) are relative to two entities.
    Here they are relative to the query, and distances are clipped to the reach (Shaw et al. 2018, section 3.2).

    Cost: O(pairs d)

    Args:
        dim: Width of one head.
        heads: Number of heads.
        reach: Largest distance, to either side, that has a vector of its own.
    """

    traits = Traits(
        layouts=(DenseSupport, BlockSupport),
        unsupported={
            Use.CROSS: "depends on the distance between query and key, which exists only within one sequence",
        },
    )

    def __init__(self, *, dim: PositiveInt, heads: PositiveInt, reach: NonNegativeInt = 32) -> None:
        super().__init__()
        self.reach = reach
        self.position = nn.Parameter(torch.empty(heads, 2 * reach + 1, dim))
        self.vector = nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.position, std=1.0 / math.sqrt(self.position.shape[-1]))
        glorot_(self.vector)

    def forward(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        check_widths(query, key)
        distance = support.relative_positions(query, key).clamp(-self.reach, self.reach) + self.reach
        # s_ij = v · tanh(q_i + k_j + p_(j - i))
        head = torch.arange(len(self.position), device=query.device).view(-1, *[1] * (distance.dim() - 2))
        hidden = tanh_(support.gather_queries(query) + support.gather_keys(key) + self.position[head, distance])
        return support.dot_parameter(hidden, self.vector)


@validate_ranges
class GAT(Score):
    """LeakyReLU(a_q · q + a_k · k) (Velickovic et al. 2018, eq. 3, with a split into its two halves).

    This is static attention: the ranking of the keys does not depend on the query (Brody et al. 2022, theorem 1).

    Cost: O(n d + pairs)

    Args:
        dim: Width of one head.
        heads: Number of heads.
        slope: Slope of LeakyReLU for negative numbers.
    """

    def __init__(self, *, dim: PositiveInt, heads: PositiveInt, slope: NonNegativeFloat = 0.2) -> None:
        super().__init__()
        self.slope = slope
        self.to_query = nn.Parameter(torch.empty(heads, dim))
        self.to_key = nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_(self.to_query)
        glorot_(self.to_key)

    def forward(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        # s_ij = LeakyReLU(a_q · q_i + a_k · k_j)
        from_query = (query * support.broadcast_heads(self.to_query)).sum(-1)
        from_key = support.map_keys(lambda key: (key * support.broadcast_heads(self.to_key)).sum(-1), key)
        return F.leaky_relu(support.gather_queries(from_query) + from_key, self.slope)


@validate_ranges
class GATv2(Score):
    """a · LeakyReLU(q + k) (Brody et al. 2022, eq. 7): the ranking of the keys may depend on the query.

    Cost: O(pairs d)

    Args:
        dim: Width of one head.
        heads: Number of heads.
        slope: Slope of LeakyReLU for negative numbers.
    """

    def __init__(self, *, dim: PositiveInt, heads: PositiveInt, slope: NonNegativeFloat = 0.2) -> None:
        super().__init__()
        self.slope = slope
        self.vector = nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_(self.vector)

    def forward(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        check_widths(query, key)
        # s_ij = a · LeakyReLU(q_i + k_j)
        hidden = F.leaky_relu(support.gather_queries(query) + support.gather_keys(key), self.slope)
        return support.dot_parameter(hidden, self.vector)


class Constant(Score):
    """The same score, zero, for every key: for models without attention.

    Cost: O(pairs)
    """

    traits = Traits(rotation_invariant=True)

    def forward(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        return support.zeros(query, key)


def _map_heads(x: Float[Tensor, "x g *n d"], weight: Float[Tensor, "h e d"]) -> Float[Tensor, "x h *n e"]:
    """Computes W x with a W for each head; if x has fewer heads, each serves a group of neighbouring W."""
    heads, _, width = weight.shape
    if x.shape[-1] != width or heads % x.shape[1]:
        raise ValueError(f"a score for {heads} heads of width {width} was given {x.shape[1]} of {x.shape[-1]}")
    if heads == 1:
        return F.linear(x, weight[0])
    grouped = weight.view(x.shape[1], -1, *weight.shape[1:])
    return torch.einsum("xg...d,gred->xgr...e", x, grouped).flatten(1, 2)


def _normalize(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """Computes x / |x| in fp32 or wider, so that squares do not overflow; zeros where |x| is nearly zero."""
    x = upcast(x)
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.masked_fill(length < _SHORTEST, math.inf)


def _apply_to_finite(function: Callable[[Tensor], Tensor], key: Float[Tensor, "x g *k d"]) -> Float[Tensor, "x h *k d"]:
    """Applies a function to finite keys, and returns NaN for all others.

    Padding that holds NaN is cleared only after `prepare`. If the function saw it, its zero gradient would be
    multiplied with NaN.
    """
    numbers = key.isfinite().all(-1, keepdim=True)
    result = function(key.masked_fill(~numbers, 0.0))
    return result.masked_fill(~numbers.repeat_interleave(result.shape[1] // key.shape[1], 1), math.nan)
