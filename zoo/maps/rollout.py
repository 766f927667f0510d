"""Attention of all layers multiplied: how much of each input reaches each output, through residual connections too."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor


def rollout(layers: Iterable[Float[Tensor, "b n n"]]) -> Float[Tensor, "b n n"]:
    """A~_L ... A~_1, A~ = .5 A + .5 I with rows that sum to 1 (Abnar & Zuidema 2020, eq. 1 and section 3).

    Args:
        layers: A of each layer, the first one first: its weights averaged over the heads. One is in memory at a time
            where they come from a generator.
    """

    def with_residual(weights: Tensor) -> Tensor:
        mixed = 0.5 * weights + 0.5 * torch.eye(weights.shape[-1], device=weights.device)
        return mixed / mixed.sum(-1, keepdim=True)

    return reduce(lambda product, each: each @ product, map(with_residual, layers))


def gradient_rollout(layers: Iterable[Float[Tensor, "b n n"]]) -> Float[Tensor, "b n n"]:
    """(I + A_L) ... (I + A_1) (Chefer et al. 2021, eq. 6).

    Args:
        layers: A = mean over heads of relu(gradient * weights) of each layer (eq. 5), the first one first.
    """
    with_residual = (weights + torch.eye(weights.shape[-1], device=weights.device) for weights in layers)
    return reduce(lambda product, each: each @ product, with_residual)
