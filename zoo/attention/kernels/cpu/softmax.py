"""`scaled_dot_product_attention` with stored weights, which is faster on CPUs for short rows and for bfloat16."""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from zoo.attention.cpu import Processor, is_enabled
from zoo.attention.dropout import dropout

LONGEST = {torch.float32: 96, torch.bfloat16: 256}
"""Largest number of keys for which weights are stored.

In float32 PyTorch's kernel is faster from about 50 keys with one thread, and is not faster at these sizes with two.
"""
_BYTES = 2**24


def explicit_softmax(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b h k d"],
    value: Float[Tensor, "b h k v"],
    *,
    scale: float,
    dropout_p: float,
    enable_gqa: bool,
    attn_mask: Shaped[Tensor, "#b #h #q #k"] | None = None,
) -> Float[Tensor, "b h q v"]:
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
    return (
        is_chosen
        and is_enabled("softmax")
        and key.shape[2] <= LONGEST[query.dtype]
        and is_of_few(query, key, value, most_weights(query))
    )


def most_weights(query: Float[Tensor, "b h q d"]) -> int:
    """Returns the largest number of weights to store: allocating more than this costs more time than it saves."""
    return _BYTES // query.element_size()


def is_of_few(
    query: Float[Tensor, "b h q d"], key: Float[Tensor, "b g k d"], value: Float[Tensor, "b g k v"], most: int | None
) -> bool:
    """Returns True on CPUs for several queries, equal numbers of heads and at most `most` weights (None: any)."""
    heads, rows = query.shape[1], query.shape[2]
    if query.device.type != "cpu" or rows < 2 or not heads == key.shape[1] == value.shape[1]:
        return False
    return most is None or len(query) * heads * rows * key.shape[2] <= most
