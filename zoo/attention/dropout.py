"""Dropout: of weights in three kinds, and of features or anything else; the rest is scaled.

Goes: Attend(dropout=...).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.supports.layouts import Support

_LEVELS = 1 << 16


class DropWeights(nn.Module):
    """Each weight on its own, the rest scaled by 1 / (1 - p) (Srivastava et al. 2014): the sum is kept on average.

    Cost: O(pairs)

    Args:
        p: Probability with which a weight is dropped in training.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout is a probability below 1, got {p}")
        self.p = p

    def forward(
        self, weights: Float[Tensor, "..."], support: Support, value: Float[Tensor, "*values v"]
    ) -> Float[Tensor, "..."]:
        """`value` is what the weights are about to combine; a kind that drops keys sees by it how many there are."""
        return dropout(weights, self.p, self.training)

    def extra_repr(self) -> str:
        return f"{self.p}"


class RenormalisedDropout(DropWeights):
    """Each weight on its own; the rest of a row then sum to what it summed to before (Zehui et al. 2019, section 3).

    A row that lost all its weights is zero. One that keeps next to nothing of them is scaled too, but learns nothing
    from it: the derivative is as large as the scale, and beyond what numbers hold.

    Cost: O(pairs)
    """

    def forward(
        self, weights: Float[Tensor, "..."], support: Support, value: Float[Tensor, "*values v"]
    ) -> Float[Tensor, "..."]:
        if not self.training or self.p == 0.0:
            return weights
        return support.by_row(self._of_rows, weights)

    def _of_rows(
        self, weights: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None
    ) -> Float[Tensor, "... k"]:
        weights = weights if permitted is None else weights.masked_fill(~permitted, 0.0)
        return renormalised(weights, _kept(weights, self.p))


class KeyDropout(DropWeights):
    """Whole keys, for all queries of a head alike; the rest scaled by 1 / (1 - p) (Zehui et al. 2019, section 3).

    Cost: O(pairs)
    """

    def forward(
        self, weights: Float[Tensor, "..."], support: Support, value: Float[Tensor, "*values v"]
    ) -> Float[Tensor, "..."]:
        if not self.training or self.p == 0.0:
            return weights
        return weights * support.at_key(dropout(weights.new_ones(value.shape[:-1]), self.p, True))


class Dropout(nn.Dropout):
    """`torch.nn.Dropout`, by `dropout`."""

    def forward(self, input: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return dropout(input, self.p, self.training)


def renormalised(weights: Float[Tensor, "... k"], kept: Bool[Tensor, "... k"]) -> Float[Tensor, "... k"]:
    """The kept weights of each row, scaled to the sum of all."""
    left = weights.masked_fill(~kept, 0.0)
    before, after = (x.detach().abs().sum(-1, keepdim=True) for x in (weights, left))
    is_little = after < before * math.sqrt(torch.finfo(weights.dtype).tiny)
    # first to a size of one, by a division: 1 / after may be infinite
    share = torch.where(is_little, left.detach(), left) / after.masked_fill(after == 0.0, 1.0)
    total = share.sum(-1, keepdim=True)
    return share * (weights.sum(-1, keepdim=True) / total.masked_fill(total == 0.0, 1.0))


def dropout(x: Float[Tensor, "..."], p: float, training: bool) -> Float[Tensor, "..."]:
    """On CPUs a mask costs 16 random bits an element instead of a float: a tenth of the time of torch's dropout.

    The keep rate is therefore rounded to 1/65536, and the scale is that of the rounded rate.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return x * drop_mask(x, p)


def drop_mask(x: Float[Tensor, "..."], p: float) -> Float[Tensor, "..."]:
    """What `dropout` multiplies with on CPUs: zero with probability p, else 1 / (1 - p), as rounded."""
    kept = round((1.0 - p) * _LEVELS)
    if kept == 0:
        return torch.zeros_like(x)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
    bits = words.random_(-(2**63), None).view(torch.int16)[: x.numel()]
    return (bits < kept - _LEVELS // 2).to(x.dtype).mul_(_LEVELS / kept).view(x.shape)


def _kept(x: Tensor, p: float) -> Tensor:
    return dropout(torch.ones_like(x), p, True) != 0
