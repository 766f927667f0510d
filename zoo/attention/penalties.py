"""Penalties: losses on recorded attention weights, added to the training loss.

Each penalty returns a sum and the number of its terms, so that the mean depends neither on padding nor on how a batch
is split over processes. Weights come from `record(model, grad=True)`; sums are computed in fp32 or wider.

Goes: penalty.NAME=WEIGHT.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.recording.attention_map import AttentionMap
from zoo.attention.recording.pair_weights import DensePairs, pairs_of
from zoo.types import PositiveFloat, validate_ranges

Real = Bool[Tensor, "b q"] | None
"""True at queries that are not padding. If None, the support of the map decides which queries are real."""


@dataclass(frozen=True, eq=False)
class PenaltySum:
    """A penalty summed over `count` queries. A query counts once for each head unless the penalty says otherwise."""

    total: Float[Tensor, ""]
    count: int

    @property
    def mean(self) -> Float[Tensor, ""]:
        return self.total / max(1, self.count)


@dataclass(frozen=True)
class Coverage:
    """sum_j min(a_tj, c_tj), c_tj = sum_{s<t} a_sj (See et al. 2017, eq. 12): penalises attending to a key twice.

    Here t is the step of a decoder, or the position of a query in the map.

    Cost: O(pairs)
    """

    def __call__(self, attention: AttentionMap, real: Real = None) -> PenaltySum:
        pairs = _require_dense(attention, real, self)
        weights = pairs.weights * pairs.is_real
        before = weights.cumsum(2) - weights
        return PenaltySum(torch.minimum(weights, before).sum(), int(pairs.real.sum()))


@dataclass(frozen=True)
class DoublyStochastic:
    """sum_j (1 - sum_t a_tj)^2 (Xu et al. 2015, eq. 14): penalises keys whose total weight is not one.

    Keys that no query may attend to are left out. The mean is over queries, as in the other penalties, not over keys.

    Cost: O(pairs)
    """

    def __call__(self, attention: AttentionMap, real: Real = None) -> PenaltySum:
        parts = []
        for pairs in pairs_of(attention, real):
            is_real = pairs.is_real
            sums = pairs.sum_per_key(pairs.weights * is_real)
            is_seen = pairs.sum_per_key((pairs.permitted & is_real).expand(pairs.weights.shape).to(sums.dtype)) > 0
            parts.append(PenaltySum(((1 - sums).square() * is_seen).sum(), int(pairs.real.sum())))
        return _add_parts(parts)


@validate_ranges
@dataclass(frozen=True, kw_only=True)
class Locality:
    """sum_j a_tj (1 - exp(-(t/T - j/J)^2 / 2 g^2)) (Tachibana et al. 2018, section 4): penalises non-diagonal weights.

    T and J are the numbers of real queries and keys of each example. The paper averages over all (t, j); here the mean
    is over queries, so that it does not shrink with the number of keys.

    Cost: O(pairs)

    Args:
        width: g, the tolerated distance from the diagonal as a share of the length.
    """

    width: PositiveFloat = 0.2

    def __call__(self, attention: AttentionMap, real: Real = None) -> PenaltySum:
        pairs = _require_dense(attention, real, self)
        is_real = pairs.is_real
        at_query = _share(pairs.real, pairs.weights.dtype).unsqueeze(-1)
        at_key = _share((pairs.permitted & is_real).any(2), pairs.weights.dtype).unsqueeze(-2)
        costs = 1 - (-(at_query - at_key).square() / (2 * self.width**2)).exp()
        return PenaltySum((pairs.weights * costs * is_real).sum(), int(pairs.real.sum()))


@dataclass(frozen=True)
class GuidanceSquared:
    """sum_j (a_tj - g_tj)^2 for a given alignment g (Liu et al. 2016): trains attention to match g.

    The gold weights of each query are normalized to sum to one. Queries without gold keys are left out.

    Cost: O(pairs)
    """

    def __call__(self, attention: AttentionMap, gold: Tensor, real: Real = None) -> PenaltySum:
        return _sum_guidance(attention, gold, real, lambda weights, target: (weights - target).square())


@dataclass(frozen=True)
class GuidanceCrossEntropy:
    """- sum_j g_tj log a_tj for a given alignment g (Mi et al. 2016): trains attention to match g.

    The gold weights of each query are normalized to sum to one. Queries without gold keys are left out.

    Cost: O(pairs)
    """

    def __call__(self, attention: AttentionMap, gold: Tensor, real: Real = None) -> PenaltySum:
        return _sum_guidance(attention, gold, real, lambda weights, target: -target * _log(weights))


@dataclass(frozen=True)
class NoStopPenalty:
    """- log(1 - sum_j a_tj) of queries that are to pass all keys, where weights may add up to less than one.

    Monotonic attention stops nowhere with that probability. With `GuidanceCrossEntropy` of the queries that are to stop
    this is the log-likelihood of a given alignment.

    Cost: O(pairs)
    """

    def __call__(self, attention: AttentionMap, real: Real = None) -> PenaltySum:
        parts = []
        for pairs in pairs_of(attention, real):
            left = 1 - pairs.sum_per_query(pairs.weights)
            costs = -left.clamp(min=torch.finfo(left.dtype).eps).log()
            parts.append(PenaltySum((costs * pairs.real).sum(), int(pairs.real.sum())))
        return _add_parts(parts)


@dataclass(frozen=True)
class EntropyPenalty:
    """- sum_j a_tj log a_tj, in nats (Pereyra et al. 2017, for outputs): penalises spread, or focus if weighed below 0.

    Cost: O(pairs)
    """

    def __call__(self, attention: AttentionMap, real: Real = None) -> PenaltySum:
        parts = []
        for pairs in pairs_of(attention, real):
            costs = -pairs.weights * _log(pairs.weights) * pairs.is_real
            parts.append(PenaltySum(costs.sum(), int(pairs.real.sum())))
        return _add_parts(parts)


@dataclass(frozen=True)
class HeadSimilarity:
    """The mean over pairs of heads of sum_j a^g_tj a^h_tj (Li et al. 2018, section 3.2): penalises similar heads.

    The paper's sum also pairs each head with itself. Those terms measure sharpness, not agreement, and are left out. A
    query counts once for all heads together.

    Cost: O(pairs)
    """

    def __call__(self, attention: AttentionMap, real: Real = None) -> PenaltySum:
        parts = []
        for pairs in pairs_of(attention, real):
            heads = pairs.weights.shape[1]
            if heads < 2:
                raise ValueError(f"HeadSimilarity compares heads, and {attention.site} has one")
            weights = pairs.weights * pairs.is_real
            products = weights.sum(1).square() - weights.square().sum(1)
            parts.append(PenaltySum(products.sum() / (heads * (heads - 1)), int(pairs.real.any(1).sum())))
        return _add_parts(parts)


Penalty = Coverage | DoublyStochastic | Locality | EntropyPenalty | HeadSimilarity
Guidance = GuidanceSquared | GuidanceCrossEntropy


def _require_dense(attention: AttentionMap, real: Real, penalty: object) -> DensePairs:
    """Returns the dense pairs that a penalty on ordered queries needs, and refuses maps of other layouts."""
    (pairs, *others) = pairs_of(attention, real)
    if others or not isinstance(pairs, DensePairs):
        name, axes = type(penalty).__name__, ", ".join(attention.axes)
        raise ValueError(f"{name} depends on the order of queries and needs a dense map; {attention.site} has {axes}")
    return pairs


def _sum_guidance(
    attention: AttentionMap, gold: Tensor, real: Real, cost: Callable[[Tensor, Tensor], Tensor]
) -> PenaltySum:
    parts = []
    for pairs in pairs_of(attention, real):
        target = pairs.normalize_gold(gold)
        guided = pairs.real & (pairs.sum_per_query(target) > 0)
        parts.append(
            PenaltySum((cost(pairs.weights, target) * pairs.broadcast_queries(guided)).sum(), int(guided.sum()))
        )
    return _add_parts(parts)


def _log(weights: Tensor) -> Tensor:
    """Computes a clamped logarithm, so that the logarithm and its gradient are finite where a weight is 0."""
    return weights.clamp(min=torch.finfo(weights.dtype).tiny).log()


def _share(real: Bool[Tensor, "b h n"], dtype: torch.dtype) -> Float[Tensor, "b h n"]:
    """Returns the index of each position among the real positions, divided by their number."""
    counted = real.to(dtype)
    return (counted.cumsum(-1) - 1).clamp(min=0) / counted.sum(-1, keepdim=True).clamp(min=1)


def _add_parts(parts: list[PenaltySum]) -> PenaltySum:
    return PenaltySum(torch.stack([part.total for part in parts]).sum(), sum(part.count for part in parts))
