"""Normalizers that give keys of low score a weight of exactly zero.

Both are max(scores - τ, 0) to a power, with a threshold τ for each row that is computed exactly by sorting. Scores are
shifted so that the highest one is 0. τ is then never below -1, and scores below -1 can be clamped.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.attention_state import AttentionState
from zoo.attention.kernels.dtypes import upcast
from zoo.attention.mechanism import Normalizer
from zoo.attention.supports.support import Support


class Sparsemax(Normalizer):
    """max(s_j - τ, 0), with τ such that a row sums to one (Martins & Astudillo 2016, proposition 1).

    This is the Euclidean projection of the scores onto the simplex.

    Cost: O(pairs log k)
    """

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        return support.apply_per_query(sparsemax, scores)


class Entmax15(Normalizer):
    """max(s_j / 2 - τ, 0)², with τ such that a row sums to one (Peters, Niculae & Martins 2019, algorithm 2).

    This is α-entmax with α = 1.5, between softmax (α = 1) and sparsemax (α = 2).

    Cost: O(pairs log k)
    """

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        return support.apply_per_query(entmax15, scores)


def sparsemax(
    scores: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None = None
) -> Float[Tensor, "... k"]:
    """Computes sparsemax over the permitted keys of each row, in fp32 or wider; zeros in a row that permits none."""
    shifted, exists = _shift_scores(scores, permitted)
    return _Sparsemax.apply(shifted, exists)  # type: ignore[no-any-return]


def entmax15(scores: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None = None) -> Float[Tensor, "... k"]:
    """Computes 1.5-entmax over the permitted keys of each row, in fp32 or wider; zeros in a row that permits none."""
    shifted, exists = _shift_scores(scores / 2, permitted)
    return _Entmax15.apply(shifted, exists)  # type: ignore[no-any-return]


def _shift_scores(
    scores: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None
) -> tuple[Float[Tensor, "... k"], Bool[Tensor, "... k"]]:
    """Subtracts the highest score of each row; returns the result and a mask of permitted keys not scored -inf."""
    scores = upcast(scores)
    if permitted is not None:
        scores = scores.masked_fill(~permitted, -torch.inf)
    exists = scores != -torch.inf
    if not scores.shape[-1]:
        return scores, exists
    with torch.no_grad():  # a shift of the row changes neither the weights nor their gradient
        highest = scores.amax(-1, keepdim=True)
        highest = highest.masked_fill(highest == -torch.inf, 0.0)
    return scores - highest, exists


class _Sparsemax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(shifted: Tensor, exists: Tensor) -> Tensor:
        if not shifted.numel():
            weights = torch.zeros_like(shifted)
        else:
            shifted = shifted.clamp(min=-1.0)
            falling, count = _sort(shifted)
            total = falling.cumsum(-1)
            size = (1.0 + count * falling > total).sum(-1, keepdim=True).clamp(min=1)
            threshold = (total.gather(-1, size - 1) - 1.0) / size
            weights = (shifted - threshold).clamp(min=0.0).masked_fill(~exists, 0.0)
        return weights

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _differentiate_sparsemax(gradients[0], *ctx.saved_tensors), None


def _differentiate_sparsemax(change: Float[Tensor, "... k"], weights: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
    """Subtracts the mean over the nonzero weights (Martins & Astudillo 2016, section 2.5).

    The Jacobian is symmetric.
    """
    in_support = (weights != 0).to(weights.dtype)
    inside = change.masked_fill(weights == 0, 0.0)
    mean = inside.sum(-1, keepdim=True) / in_support.sum(-1, keepdim=True).clamp(min=1.0)
    return inside - in_support * mean


class _Entmax15(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(shifted: Tensor, exists: Tensor) -> Tensor:
        if not shifted.numel():
            weights = torch.zeros_like(shifted)
        else:
            shifted = shifted.clamp(min=-1.0)
            threshold = _refine(_threshold_of_squares(shifted), shifted)
            weights = (shifted - threshold).clamp(min=0.0).square().masked_fill(~exists, 0.0)
        return weights

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _differentiate_entmax(gradients[0], *ctx.saved_tensors), None


def _differentiate_entmax(change: Float[Tensor, "... k"], weights: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
    """Computes 2r · (change - its mean weighted by r), r = √p (Peters et al. 2019, proposition 2, for s / 2).

    The Jacobian is symmetric.
    """
    root = weights.sqrt()
    inside = change.masked_fill(weights == 0, 0.0)
    total = root.sum(-1, keepdim=True)
    mean = (inside * root).sum(-1, keepdim=True) / total.masked_fill(total == 0, 1.0)
    return 2.0 * root * (inside - mean)


def _sort(shifted: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts each row in descending order; returns it with the counts 1, 2, ... of its keys."""
    falling = shifted.sort(-1, descending=True).values
    return falling, torch.arange(1, shifted.shape[-1] + 1, device=shifted.device, dtype=shifted.dtype)


def _threshold_of_squares(shifted: Tensor) -> Tensor:
    """Computes τ = mean - sqrt((1 - sum of squared deviations) / size) over the keys that end up above it."""
    falling, count = _sort(shifted)
    mean = falling.cumsum(-1) / count
    deviations = falling.square().cumsum(-1) - count * mean.square()
    thresholds = mean - ((1.0 - deviations) / count).clamp(min=0.0).sqrt()
    size = ((thresholds <= falling) & (falling > -1.0)).sum(-1, keepdim=True).clamp(min=1)
    return thresholds.gather(-1, size - 1)


def _refine(threshold: Tensor, shifted: Tensor) -> Tensor:
    """Refines τ by one Newton step, because the closed form loses digits if many keys share the weight."""
    over = (shifted - threshold).clamp(min=0.0)
    slope = 2.0 * over.sum(-1, keepdim=True)
    return threshold + (over.square().sum(-1, keepdim=True) - 1.0) / slope
