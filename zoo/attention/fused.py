"""Kernels that compute a whole combination of score, normaliser and support at once.

A kernel is registered for exact types; everything else takes the written-out path. It returns the same context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.normalisers import Softmax
from zoo.attention.scores import Dot, ScaledDot
from zoo.attention.supports import DenseSupport, Support

Kernel = Callable[..., Tensor]
_KERNELS: dict[tuple[type, type, type], Kernel] = {}


def fuses(score: type, normalise: type, support: type) -> Callable[[Kernel], Kernel]:
    """Registers a kernel `(score, query, key, value, support, dropout) -> context`."""

    def register(kernel: Kernel) -> Kernel:
        _KERNELS[score, normalise, support] = kernel
        return kernel

    return register


def find(score: nn.Module, normalise: nn.Module, support: Support) -> Kernel | None:
    return _KERNELS.get((type(score), type(normalise), type(support)))


@fuses(Dot, Softmax, DenseSupport)
@fuses(ScaledDot, Softmax, DenseSupport)
def dot_softmax(
    score: Dot,
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b h k d"],
    value: Float[Tensor, "b h k v"],
    support: DenseSupport,
    p: float,
) -> Float[Tensor, "b h q v"]:
    scale = score.scale(query.shape[-1])
    if support.permitted is None and (not support.causal or query.shape[2] == key.shape[2]):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=p, is_causal=support.causal, scale=scale)
    mask = support.mask(query.shape[2], key.shape[2], query.device)
    assert mask is not None
    any_key = mask.any(-1, keepdim=True)
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask | ~any_key, dropout_p=p, scale=scale)
    return _without_empty_rows(context, any_key)


def _without_empty_rows(
    context: Float[Tensor, "b h q v"], any_key: Bool[Tensor, "#b #h #q 1"]
) -> Float[Tensor, "b h q v"]:
    """Queries without keys were computed as if they had them all, so that nothing is NaN; here they become zeros."""
    return torch.where(any_key, context, context.new_zeros(()))


def kernels() -> dict[tuple[str, str, str], Any]:
    """What is registered, by name."""
    return {(s.__name__, n.__name__, p.__name__): kernel for (s, n, p), kernel in _KERNELS.items()}
