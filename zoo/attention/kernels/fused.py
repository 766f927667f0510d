"""Fused kernels, each for one combination of score, normalizer and support.

A kernel is registered for exact types and returns the same context as the written-out path, which all other
combinations take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.attention.cpu import PROCESSOR
from zoo.attention.dropout import DropWeights
from zoo.attention.kernels.cpu.causal import causal_attention, use_causal_blocks
from zoo.attention.kernels.cpu.softmax import explicit_softmax, use_explicit_softmax
from zoo.attention.kernels.dtypes import unify_dtypes
from zoo.attention.mechanism import check_widths
from zoo.attention.normalizers.soft import Softmax
from zoo.attention.scores.pairwise import Cosine, Dot, General, ScaledDot
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.support import Support

if TYPE_CHECKING:
    from zoo.attention.attention import Attention

Kernel = Callable[..., Tensor]
_KERNELS: dict[tuple[type, type, type], Kernel] = {}


def register_kernel(score: type, normalize: type, support: type) -> Callable[[Kernel], Kernel]:
    """Registers a kernel `(attend, query, key, value, support, bias) -> context`."""

    def register(kernel: Kernel) -> Kernel:
        _KERNELS[score, normalize, support] = kernel
        return kernel

    return register


def find(attend: Attention, support: Support) -> Kernel | None:
    """Returns the kernel for a site's mechanisms; None if there is none or the site needs the weights themselves."""
    if type(attend.dropout) is not DropWeights or (
        attend.position is not None and attend.position.traits.needs_weights
    ):
        return None
    return _KERNELS.get((type(attend.score), type(attend.normalizer), type(support)))


@register_kernel(Dot, Softmax, DenseSupport)
@register_kernel(ScaledDot, Softmax, DenseSupport)
@register_kernel(General, Softmax, DenseSupport)
@register_kernel(Cosine, Softmax, DenseSupport)
def dot_softmax(
    attend: Attention,
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k v"],
    support: DenseSupport,
    bias: Float[Tensor, "#b #h #q #k"] | None,
) -> Float[Tensor, "b h q v"]:
    score: Any = attend.score
    temperature, options = temperature_of(attend), kernel_options(attend, query)
    options["enable_gqa"] = key.shape[1] != query.shape[1]  # else each decoding step would copy all keys
    query, key, value = unify_dtypes(score.transform_query(query), key, value)
    check_widths(query, key)
    is_plain = bias is None and support.is_plain(query.shape[2], key.shape[2])
    if is_plain and support.causal:
        if use_causal_blocks(query, key, value, options["dropout_p"], PROCESSOR):
            with torch.autocast(query.device.type, enabled=False):
                return causal_attention(query, key, value, options["scale"], options["dropout_p"])
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, **options)
    is_masked = bias is None and not is_plain
    attended = (
        explicit_softmax
        if use_explicit_softmax(query, key, value, is_masked, PROCESSOR)
        else F.scaled_dot_product_attention
    )
    if is_plain:
        return attended(query, key, value, **options)
    mask = support.mask(query.shape[2], key.shape[2], query.device)
    added = None if bias is None else bias.to(query.dtype) / temperature
    if mask is None:
        return attended(query, key, value, attn_mask=added, **options)
    sees = support.sees(query.shape[2], key.shape[2], query.device)
    if sees is not None:
        mask = mask | ~sees
    if added is not None:
        mask = torch.where(mask, added, float("-inf"))
    context = attended(query, key, value, attn_mask=mask, **options)
    # Queries without keys were computed with all keys, so that nothing is NaN; their context is set to zero here.
    return context if sees is None else torch.where(sees, context, context.new_zeros(()))


def kernel_options(attend: Attention, query: Float[Tensor, "b h q d"]) -> dict[str, Any]:
    """Returns the options of `scaled_dot_product_attention` for a site; `query` is as yet unchanged by the score."""
    return {
        "dropout_p": attend.dropout.p if attend.dropout.training else 0.0,
        "scale": attend.score.scale(query.shape[-1]) / temperature_of(attend),
    }


def temperature_of(attend: Attention) -> float:
    """Returns the temperature of a site with `Softmax`."""
    softmax: Any = attend.normalizer
    return softmax.temperature  # type: ignore[no-any-return]


def kernels() -> dict[tuple[str, str, str], Any]:
    """Returns the registered kernels by the names of score, normalizer and support."""
    return {(s.__name__, n.__name__, p.__name__): kernel for (s, n, p), kernel in _KERNELS.items()}
