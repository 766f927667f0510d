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
from zoo.attention.dropout import DropWeights, dropout
from zoo.attention.kernels.causal import causal_attention
from zoo.attention.kernels.processor import PROCESSOR, Processor
from zoo.attention.normalisers.soft import Softmax
from zoo.attention.scores.pairwise import Cosine, Dot, General, ScaledDot
from zoo.attention.supports.layouts import DenseSupport, Support

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
    is_plain = bias is None and support.is_plain(query.shape[2], key.shape[2])
    if is_plain and support.causal:
        if goes_in_blocks(query, key, value, options["dropout_p"], PROCESSOR):
            with torch.autocast(query.device.type, enabled=False):
                return causal_attention(query, key, value, options["scale"], options["dropout_p"])
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, **options)
    is_masked = bias is None and not is_plain
    attended = _written_out if writes_out(query, key, value, is_masked, PROCESSOR) else F.scaled_dot_product_attention
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
    # Queries without keys were computed as if they had them all, so that nothing is NaN; here they become zeros.
    return context if sees is None else torch.where(sees, context, context.new_zeros(()))


def kernel_options(attend: Attend, query: Float[Tensor, "b h q d"]) -> dict[str, Any]:
    """What `scaled_dot_product_attention` is told of a site, before its score has changed the queries."""
    return {
        "dropout_p": attend.dropout.p if attend.dropout.training else 0.0,
        "scale": attend.score.scale(query.shape[-1]) / attend.normalise.temperature,
    }


def goes_in_blocks(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k v"],
    p: float,
    processor: Processor,
) -> bool:
    """Where causal attention goes by `causal_attention`: faster than PyTorch's kernel, but of more memory.

    PyTorch's kernel for CPUs knows no dropout: then it writes all weights out, and takes most of the time for random
    numbers. In bfloat16 see `writes_out`; short rows of float32 without dropout are left to it.
    """
    if torch.compiler.is_compiling() or not _is_of_few(query, key, value, None if p else _most(query)):
        return False
    if query.dtype == torch.bfloat16:
        return processor.has_bf16
    if query.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    return p > 0.0 or key.shape[2] > _SHORT[torch.float32]


def writes_out(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b g k d"],
    value: Float[Tensor, "b g k v"],
    is_masked: bool,
    processor: Processor,
) -> bool:
    """Where weights in memory are faster than PyTorch's kernel for CPUs: by shape, dtype, device and processor alone.

    Its tiles are made for longer rows; a bias that is learned makes it write out all weights too, with more copies. In
    bfloat16 its backward pass multiplies in float32, whatever the processor has: it takes 3 to 10 times as long.

    Args:
        is_masked: Some pairs are forbidden, and nothing is added to the others: in float32 the kernel is fast at that.
    """
    if query.dtype == torch.bfloat16:
        is_chosen = processor.has_bf16
    else:
        is_chosen = query.dtype == torch.float32 and not is_masked and not torch.is_autocast_enabled("cpu")
    return is_chosen and key.shape[2] <= _SHORT[query.dtype] and _is_of_few(query, key, value, _most(query))


def _most(query: Tensor) -> int:
    """Weights that may be in memory at once: beyond, memory that is new each time costs more than the kernel."""
    return _BYTES // query.element_size()


def _is_of_few(query: Tensor, key: Tensor, value: Tensor, most: int | None) -> bool:
    """On the CPU several queries, as many heads of keys as of queries, and so many weights at most."""
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
    """`scaled_dot_product_attention` with the weights in memory, in the dtype of the query."""
    # Autocast would take the weights of bfloat16 scores to float32 and back; softmax adds up in float32 in any case.
    with torch.autocast(query.device.type, enabled=False):
        scores = torch.matmul(query * scale, key.transpose(-1, -2))
        if attn_mask is not None:
            is_allowed = attn_mask.dtype == torch.bool
            scores = scores.masked_fill(~attn_mask, -torch.inf) if is_allowed else scores + attn_mask
        return torch.matmul(dropout(scores.softmax(-1), dropout_p, True), value)


_SHORT = {torch.float32: 96, torch.bfloat16: 256}
"""Keys of a row that is written out. With one thread PyTorch's kernel wins from about 50 in float32, with two not."""
_BYTES = 2**24


def kernels() -> dict[tuple[str, str, str], Any]:
    """What is registered, by name."""
    return {(s.__name__, n.__name__, p.__name__): kernel for (s, n, p), kernel in _KERNELS.items()}
