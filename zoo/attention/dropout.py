"""Dropout: three kinds for attention weights, and one for features; what is kept is scaled up.

Goes: Attention(dropout=...).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.supports.support import Support
from zoo.types import Probability, validate_ranges

_LEVELS = 1 << 16


@validate_ranges
class DropWeights(nn.Module):
    """Drops weights independently and scales the others by 1 / (1 - p) (Srivastava et al. 2014).

    Cost: O(pairs)

    Args:
        p: Probability that a weight is dropped in training.
    """

    def __init__(self, p: Probability) -> None:
        super().__init__()
        self.p = p

    def forward(
        self, weights: Float[Tensor, "..."], support: Support, value: Float[Tensor, "*values v"]
    ) -> Float[Tensor, "..."]:
        """Drops weights in training.

        Args:
            value: Values that the weights will combine; `KeyDropout` takes the number of keys from its shape.
        """
        return dropout(weights, self.p, self.training)

    def extra_repr(self) -> str:
        return f"{self.p}"


class RenormalizedDropout(DropWeights):
    """Drops weights independently and scales the others so that each row keeps its sum (Zehui et al. 2019, section 3).

    A row that lost all its weights is zero. If the kept weights are so small that the derivative of the scale would
    overflow, the row is scaled without a gradient.

    Cost: O(pairs)
    """

    def forward(
        self, weights: Float[Tensor, "..."], support: Support, value: Float[Tensor, "*values v"]
    ) -> Float[Tensor, "..."]:
        if not self.training or self.p == 0.0:
            return weights
        return support.apply_per_query(self._drop_and_renormalize, weights)

    def _drop_and_renormalize(
        self, weights: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None
    ) -> Float[Tensor, "... k"]:
        weights = weights if permitted is None else weights.masked_fill(~permitted, 0.0)
        return renormalize(weights, _draw_kept(weights, self.p))


class KeyDropout(DropWeights):
    """Drops keys for all queries of a head and scales the others by 1 / (1 - p) (Zehui et al. 2019, section 3).

    Cost: O(pairs)
    """

    def forward(
        self, weights: Float[Tensor, "..."], support: Support, value: Float[Tensor, "*values v"]
    ) -> Float[Tensor, "..."]:
        if not self.training or self.p == 0.0:
            return weights
        return weights * support.gather_keys(dropout(weights.new_ones(value.shape[:-1]), self.p, True))


class Dropout(nn.Dropout):
    """The same as `torch.nn.Dropout`, computed by `dropout`, which is faster on CPUs."""

    def forward(self, input: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return dropout(input, self.p, self.training)


def renormalize(weights: Float[Tensor, "... k"], is_kept: Bool[Tensor, "... k"]) -> Float[Tensor, "... k"]:
    """Scales the kept weights of each row to the sum that the row had before."""
    left = weights.masked_fill(~is_kept, 0.0)
    before, after = (x.detach().abs().sum(-1, keepdim=True) for x in (weights, left))
    is_little = after < before * math.sqrt(torch.finfo(weights.dtype).tiny)
    # divide first, so that the shares are of order one: the reciprocal 1 / after may be infinite
    share = torch.where(is_little, left.detach(), left) / after.masked_fill(after == 0.0, 1.0)
    total = share.sum(-1, keepdim=True)
    return share * (weights.sum(-1, keepdim=True) / total.masked_fill(total == 0.0, 1.0))


def dropout(x: Float[Tensor, "..."], p: float, training: bool) -> Float[Tensor, "..."]:
    """Drops elements with probability p in training and scales the others by 1 / (1 - p).

    On CPUs the mask is drawn from 16 random bits an element, which takes a tenth of the time of torch's dropout. The
    keep rate is therefore rounded to a multiple of 1/65536, and the scale is computed from the rounded rate.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * drop_mask(x, p)


def drop_mask(x: Float[Tensor, "..."], p: float) -> Float[Tensor, "..."]:
    """Draws the factors of `dropout` on CPUs: zero with probability p, else 1 / (1 - p), both for the rounded rate."""
    levels_kept = round((1.0 - p) * _LEVELS)
    if levels_kept == 0:
        return torch.zeros_like(x)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
    bits = words.random_(-(2**63), None).view(torch.int16)[: x.numel()]
    return (bits < levels_kept - _LEVELS // 2).to(x.dtype).mul_(_LEVELS / levels_kept).view(x.shape)


def _draw_kept(x: Tensor, p: float) -> Tensor:
    return dropout(torch.ones_like(x), p, True) != 0
