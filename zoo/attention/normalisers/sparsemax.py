"""Normalisers that give exactly zero to keys of low score.

Both are max(scores - τ, 0) to a power, with one threshold τ a row, found exactly by sorting. The highest score is 0
after a shift and τ is never below -1, so that what lies below -1 is out, however far.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention.kernels.precision import at_least_single
from zoo.attention.state import AttentionState
from zoo.attention.supports.support import Support


class Sparsemax(nn.Module):
    """max(s_j - τ, 0), with τ such that a row sums to one (Martins & Astudillo 2016, proposition 1).

    It is the point of the simplex nearest to the scores.

    Cost: O(pairs log k)
    """

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        return support.by_row(sparsemax, scores)


class Entmax15(nn.Module):
    """max(s_j / 2 - τ, 0)², with τ such that a row sums to one (Peters, Niculae & Martins 2019, algorithm 2).

    α-entmax with α = 1.5: between softmax (1) and sparsemax (2).

    Cost: O(pairs log k)
    """

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        return support.by_row(entmax15, scores)


def sparsemax(
    scores: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None = None
) -> Float[Tensor, "... k"]:
    """Over the permitted keys of each row, in at least fp32; zeros in a row that permits none."""
    shifted, exists = _shifted(scores, permitted)
    return _Sparsemax.apply(shifted, exists)  # type: ignore[no-any-return]


def entmax15(scores: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None = None) -> Float[Tensor, "... k"]:
    """Over the permitted keys of each row, in at least fp32; zeros in a row that permits none."""
    shifted, exists = _shifted(scores / 2, permitted)
    return _Entmax15.apply(shifted, exists)  # type: ignore[no-any-return]


def _shifted(
    scores: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None
) -> tuple[Float[Tensor, "... k"], Bool[Tensor, "... k"]]:
    """Scores less the highest of their row, and whether a key exists: permitted, and not of score -inf."""
    scores = at_least_single(scores)
    if permitted is not None:
        scores = scores.masked_fill(~permitted, -torch.inf)
    exists = scores != -torch.inf
    if not scores.shape[-1]:
        return scores, exists
    with torch.no_grad():  # a constant of the row changes nothing, in the gradient neither
        highest = scores.amax(-1, keepdim=True)
        highest = highest.masked_fill(highest == -torch.inf, 0.0)
    return scores - highest, exists


class _Sparsemax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shifted: Tensor, exists: Tensor) -> Tensor:
        if not shifted.numel():
            weights = torch.zeros_like(shifted)
        else:
            shifted = shifted.clamp(min=-1.0)
            falling, count = _sorted(shifted)
            total = falling.cumsum(-1)
            size = (1.0 + count * falling > total).sum(-1, keepdim=True).clamp(min=1)
            threshold = (total.gather(-1, size - 1) - 1.0) / size
            weights = (shifted - threshold).clamp(min=0.0).masked_fill(~exists, 0.0)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """On the support: the gradient less its mean there (Martins & Astudillo 2016, section 2.5)."""
        (weights,) = ctx.saved_tensors
        kept = (weights != 0).to(weights.dtype)
        inside = gradients[0].masked_fill(weights == 0, 0.0)
        mean = inside.sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp(min=1.0)
        return inside - kept * mean, None


class _Entmax15(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shifted: Tensor, exists: Tensor) -> Tensor:
        if not shifted.numel():
            weights = torch.zeros_like(shifted)
        else:
            shifted = shifted.clamp(min=-1.0)
            threshold = _refined(_threshold_of_squares(shifted), shifted)
            weights = (shifted - threshold).clamp(min=0.0).square().masked_fill(~exists, 0.0)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """2r · (gradient - its mean weighted by r), with r = √p (Peters et al. 2019, proposition 2, for s / 2)."""
        (weights,) = ctx.saved_tensors
        root = weights.sqrt()
        inside = gradients[0].masked_fill(weights == 0, 0.0)
        total = root.sum(-1, keepdim=True)
        mean = (inside * root).sum(-1, keepdim=True) / total.masked_fill(total == 0, 1.0)
        return 2.0 * root * (inside - mean), None


def _sorted(shifted: Tensor) -> tuple[Tensor, Tensor]:
    """Each row from high to low, and how many keys there are up to each."""
    falling = shifted.sort(-1, descending=True).values
    return falling, torch.arange(1, shifted.shape[-1] + 1, device=shifted.device, dtype=shifted.dtype)


def _threshold_of_squares(shifted: Tensor) -> Tensor:
    """τ of the smallest support that agrees with itself: mean - sqrt((1 - sum of squared deviations) / size)."""
    falling, count = _sorted(shifted)
    mean = falling.cumsum(-1) / count
    deviations = falling.square().cumsum(-1) - count * mean.square()
    thresholds = mean - ((1.0 - deviations) / count).clamp(min=0.0).sqrt()
    size = ((thresholds <= falling) & (falling > -1.0)).sum(-1, keepdim=True).clamp(min=1)
    return thresholds.gather(-1, size - 1)


def _refined(threshold: Tensor, shifted: Tensor) -> Tensor:
    """A step of Newton's: the closed form loses digits where many keys share the weight."""
    over = (shifted - threshold).clamp(min=0.0)
    slope = 2.0 * over.sum(-1, keepdim=True)
    return threshold + (over.square().sum(-1, keepdim=True) - 1.0) / slope
