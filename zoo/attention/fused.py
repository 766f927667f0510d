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

from zoo.attention.causal import causal_attention
from zoo.attention.checks import check_widths
from zoo.attention.dropout import DropWeights, dropout
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
        if _is_written_out(query, key, value, support.causal, options["dropout_p"]):
            own = causal_attention if support.causal else _written_out
            return own(query, key, value, options["scale"], options["dropout_p"])
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


def _is_written_out(query: Tensor, key: Tensor, value: Tensor, causal: bool, p: float) -> bool:
    """Where PyTorch's kernel for CPUs does not pay for itself.

    Its tiles are made for longer rows; what is causal has its own blocks, faster for all lengths but of more memory;
    and it knows no dropout: then PyTorch writes all weights out, and takes most of the time for random numbers.
    """
    heads, rows, keys = query.shape[1], query.shape[2], key.shape[2]
    if query.device.type != "cpu" or query.dtype != torch.float32 or not heads == key.shape[1] == value.shape[1]:
        return False
    is_small = len(query) * heads * rows * keys <= _SCORES
    if causal:
        is_plain = not torch.compiler.is_compiling() and not torch.is_autocast_enabled("cpu")
        return is_plain and rows > 1 and (p > 0.0 or (keys > _SHORT and is_small))
    return rows > 1 and keys <= _SHORT and is_small


def _written_out(query: Tensor, key: Tensor, value: Tensor, scale: float, p: float) -> Tensor:
    """softmax(query key^T * scale) value, with the weights in memory."""
    weights = torch.matmul(query * scale, key.transpose(-1, -2)).softmax(-1)
    return torch.matmul(dropout(weights, p, True), value)


_SHORT = 96
_SCORES = 2**22  # 16 MiB of them; beyond, memory that is new each time costs more than the kernel


def kernels() -> dict[tuple[str, str, str], Any]:
    """What is registered, by name."""
    return {(s.__name__, n.__name__, p.__name__): kernel for (s, n, p), kernel in _KERNELS.items()}
