"""Softmax multiplied by a Gaussian around the center of each query."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention.attention_state import AttentionState
from zoo.attention.mechanism import Normalizer, Traits
from zoo.attention.supports.local import LocalSupport


class Gaussian(Normalizer):
    """softmax(s) exp(-(s - p_t)^2 / 2 sigma^2), sigma = D / 2 (Luong et al. 2015, eq. 10); rows do not sum to one.

    The gradient reaches p_t, the center that `LocalP` predicts.

    Cost: O(pairs)
    """

    traits = Traits(layouts=(LocalSupport,))

    def forward(
        self, scores: Float[Tensor, "b h q s"], support: LocalSupport, state: AttentionState | None = None
    ) -> Float[Tensor, "b h q s"]:
        weights = support.softmax(scores)
        # With a radius of 0 the only distance is 0, so any width gives the same weights.
        deviation = max(support.radius, 1) / 2
        distance = (support.key_at - support.center.unsqueeze(-1)).masked_fill(~support.permitted, 0.0)
        return weights * torch.exp(-distance.square() / (2 * deviation**2)).to(weights.dtype)
