"""Kernels that compute a whole combination of score, normaliser and support at once.

A kernel is registered for exact types; everything else takes the written-out path. It returns the same context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.attention.checks import check_widths
from zoo.attention.dropout import DropWeights
from zoo.attention.normalisers import Softmax
from zoo.attention.scores import Cosine, Dot, General, ScaledDot
from zoo.attention.supports import DenseSupport, Support

if TYPE_CHECKING:
    from zoo.attention.attend import Attend

Kernel = Callable[..., Tensor]
_KERNELS: dict[tuple[type, type, type], Kernel] = {}


def fuses(score: type, normalise: type, support: type) -> Callable[[Kernel], Kernel]:
    """Registers a kernel `(attend, query, key, value, support, bias) -> context`."""

    def register(kernel: Kernel) -> Kernel:
        _KERNELS[score, normalise, support] = kernel
        return kernel

    return register


def find(attend: Attend, support: Support) -> Kernel | None:
    """The kernel for a site's mechanisms, unless something about them needs the weights themselves."""
    if type(attend.dropout) is not DropWeights or (attend.position is not None and attend.position.needs_weights):
        return None
    return _KERNELS.get((type(attend.score), type(attend.normalise), type(support)))


@fuses(Dot, Softmax, DenseSupport)
@fuses(ScaledDot, Softmax, DenseSupport)
@fuses(General, Softmax, DenseSupport)
@fuses(Cosine, Softmax, DenseSupport)
def dot_softmax(
    attend: Attend,
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k v"],
    support: DenseSupport,
    bias: Float[Tensor, "#b #h #q #k"] | None,
) -> Float[Tensor, "b h q v"]:
    temperature, options = attend.normalise.temperature, kernel_options(attend, query)
    options["enable_gqa"] = key.shape[1] != query.shape[1]  # without it one step of a decoder copies all keys
    query = attend.score.of_query(query)
    check_widths(query, key)
    if bias is None and support.is_plain(query.shape[2], key.shape[2]):
        if not support.causal and _is_short(query, key, value):
            return _written_out(query, key, value, options["scale"], options["dropout_p"])
        return F.scaled_dot_product_attention(query, key, value, is_causal=support.causal, **options)
    mask = support.mask(query.shape[2], key.shape[2], query.device)
    added = None if bias is None else bias.to(query.dtype) / temperature
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=added, **options)
    sees = support.sees(query.shape[2], key.shape[2], query.device)
    if sees is not None:
        mask = mask | ~sees
    if added is not None:
        mask = torch.where(mask, added, float("-inf"))
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, **options)
    # Queries without keys were computed as if they had them all, so that nothing is NaN; here they become zeros.
    return context if sees is None else torch.where(sees, context, context.new_zeros(()))


def kernel_options(attend: Attend, query: Float[Tensor, "b h q d"]) -> dict[str, Any]:
    """What `scaled_dot_product_attention` is told of a site, before its score has changed the queries."""
    return {
        "dropout_p": attend.dropout.p if attend.dropout.training else 0.0,
        "scale": attend.score.scale(query.shape[-1]) / attend.normalise.temperature,
    }


def _is_short(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Where PyTorch's kernel for CPUs does not pay for itself: its tiles are made for longer rows."""
    heads, rows, keys = query.shape[1], query.shape[2], key.shape[2]
    if query.device.type != "cpu" or query.dtype != torch.float32 or not heads == key.shape[1] == value.shape[1]:
        return False
    return rows > 1 and keys <= _SHORT and len(query) * heads * rows * keys <= _SCORES


def _written_out(query: Tensor, key: Tensor, value: Tensor, scale: float, dropout: float) -> Tensor:
    """softmax(query key^T * scale) value, with the weights in memory."""
    scores = torch.matmul(query * scale, key.transpose(-1, -2))
    weights = F.dropout(scores.softmax(-1), dropout) if dropout else scores.softmax(-1)
    return torch.matmul(weights, value)


_SHORT = 96
_SCORES = 2**22  # 16 MiB of them; beyond, memory that is new each time costs more than the kernel


def kernels() -> dict[tuple[str, str, str], Any]:
    """What is registered, by name."""
    return {(s.__name__, n.__name__, p.__name__): kernel for (s, n, p), kernel in _KERNELS.items()}
