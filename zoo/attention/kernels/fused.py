"""Fused kernels, each for one combination of score, normaliser and support.

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

from zoo.attention.dropout import DropWeights, dropout
from zoo.attention.kernels.causal import causal_attention
from zoo.attention.kernels.cpu_features import PROCESSOR, Processor, is_transformed
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


def register_kernel(score: type, normalise: type, support: type) -> Callable[[Kernel], Kernel]:
    """Registers a kernel `(attend, query, key, value, support, bias) -> context`."""

    def register(kernel: Kernel) -> Kernel:
        _KERNELS[score, normalise, support] = kernel
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
        _written_out
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


def use_causal_blocks(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k v"],
    p: float,
    processor: Processor,
) -> bool:
    """Returns True if `causal_attention` is faster than PyTorch's kernel; it needs more memory.

    PyTorch's CPU kernel does not support dropout; with dropout PyTorch computes all weights, and spends most of the
    time on random numbers. For bfloat16 see `use_explicit_softmax`, which also serves short rows of float32.
    """
    if is_transformed() or not _is_of_few(query, key, value, None if p else _most(query)):
        return False
    if query.dtype == torch.bfloat16:
        return processor.has_bf16
    if query.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    return p > 0.0 or key.shape[2] > _SHORT[torch.float32]


def use_explicit_softmax(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k v"],
    is_masked: bool,
    processor: Processor,
) -> bool:
    """Returns True if storing all weights is faster than PyTorch's CPU kernel.

    This depends only on shape, dtype, device and processor. The tiles of PyTorch's kernel are made for longer rows, and
    with a learned bias PyTorch stores all weights too, with more copies. In bfloat16 its backward pass multiplies in
    float32 on every processor, which takes 3 to 10 times as long.

    Args:
        is_masked: True if there is a mask and no bias; PyTorch's kernel is fast at that in float32.
    """
    if query.dtype == torch.bfloat16:
        is_chosen = processor.has_bf16
    else:
        is_chosen = query.dtype == torch.float32 and not is_masked and not torch.is_autocast_enabled("cpu")
    return is_chosen and key.shape[2] <= _SHORT[query.dtype] and _is_of_few(query, key, value, _most(query))


def _most(query: Tensor) -> int:
    """Returns the largest number of weights to store: allocating more than this costs more time than it saves."""
    return _BYTES // query.element_size()


def _is_of_few(query: Tensor, key: Tensor, value: Tensor, most: int | None) -> bool:
    """Returns True on CPUs for several queries, equal numbers of heads and at most `most` weights (None: any)."""
    heads, rows = query.shape[1], query.shape[2]
    if query.device.type != "cpu" or rows < 2 or not heads == key.shape[1] == value.shape[1]:
        return False
    return most is None or len(query) * heads * rows * key.shape[2] <= most


def _written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    dropout_p: float,
    enable_gqa: bool,
    attn_mask: Tensor | None = None,
) -> Tensor:
    """Computes `scaled_dot_product_attention` with stored weights, in the dtype of the query."""
    # Autocast would convert bfloat16 scores to float32 and back; softmax accumulates in float32 in any case.
    with torch.autocast(query.device.type, enabled=False):
        scores = torch.matmul(query * scale, key.transpose(-1, -2))
        if attn_mask is None:
            weights = scores.softmax(-1)
        elif attn_mask.dtype == torch.bool:
            weights = scores.masked_fill(~attn_mask, -torch.inf).softmax(-1)
        else:  # a bias may be -inf at all keys of a query, which then has no weights
            weights = torch.ops.aten._safe_softmax(scores + attn_mask, -1)
        return torch.matmul(dropout(weights, dropout_p, True), value)


_SHORT = {torch.float32: 96, torch.bfloat16: 256}
"""Largest number of keys for which weights are stored.

In float32 PyTorch's kernel is faster from about 50 keys with one thread, and is not faster at these sizes with two.
"""
_BYTES = 2**24


def kernels() -> dict[tuple[str, str, str], Any]:
    """Returns the registered kernels by the names of score, normaliser and support."""
    return {(s.__name__, n.__name__, p.__name__): kernel for (s, n, p), kernel in _KERNELS.items()}
