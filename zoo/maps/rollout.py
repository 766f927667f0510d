"""Attention rollout: the product of the attention of all layers, with residual connections."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor


def rollout(layers: Iterable[Float[Tensor, "b n n"]]) -> Float[Tensor, "b n n"]:
    """Computes A~_L ... A~_1, where A~ = .5 A + .5 I with rows that sum to 1 (Abnar & Zuidema 2020, eq. 1, section 3).

    Args:
        layers: A of each layer, from the first to the last: its weights, averaged over the heads. If this is a
            generator, one layer is in memory at a time.
    """

    def add_residual(weights: Tensor) -> Tensor:
        total = 0.5 * weights + 0.5 * torch.eye(weights.shape[-1], device=weights.device)
        return total / total.sum(-1, keepdim=True)

    return reduce(lambda product, each: each @ product, map(add_residual, layers))


def gradient_rollout(layers: Iterable[Float[Tensor, "b n n"]]) -> Float[Tensor, "b n n"]:
    """Computes (I + A_L) ... (I + A_1) (Chefer et al. 2021, eq. 6).

    Args:
        layers: A of each layer, from the first to the last: the mean over heads of relu(gradient * weights) (eq. 5).
    """
    matrices = (weights + torch.eye(weights.shape[-1], device=weights.device) for weights in layers)
    return reduce(lambda product, each: each @ product, matrices)
