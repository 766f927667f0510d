"""Causal attention on CPUs that computes only the blocks up to the diagonal, and draws dropout only for them.

PyTorch's CPU kernel does not support dropout: with dropout, PyTorch computes all n x n weights and draws a float for
each, which takes longer than both matrix products. Here the queries are split into blocks, each block attends to the
keys up to its last query, and `zoo.attention.dropout` draws the mask. Weights and mask are kept for the backward pass,
8 bytes for each computed pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.attention.cpu import Processor, is_enabled, is_transformed
from zoo.attention.dropout import drop_mask
from zoo.attention.kernels.cpu.softmax import LONGEST, is_of_few, most_weights
from zoo.attention.kernels.dtypes import accumulation_dtype

_ROWS = 48
"""Queries in a block: smaller blocks make matrix products slower, larger ones compute more forbidden pairs."""


def causal_attention(
    query: Float[Tensor, "b h n d"],
    key: Float[Tensor, "b h n d"],
    value: Float[Tensor, "b h n v"],
    scale: float,
    dropout: float,
) -> Float[Tensor, "b h n v"]:
    """Computes dropout(softmax(scale Q K^T)) V, where each query sees the keys up to its own position."""
    batch, heads = query.shape[:2]
    context = _Causal.apply(query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1), scale, dropout)
    return context.unflatten(0, (batch, heads))  # type: ignore[no-any-return]


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
    if is_transformed() or not is_enabled("causal"):
        return False
    if not is_of_few(query, key, value, None if p else most_weights(query)):
        return False
    if query.dtype == torch.bfloat16:
        return processor.has_bf16
    if query.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    return p > 0.0 or key.shape[2] > LONGEST[torch.float32]


class _Causal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, dropout: float) -> Tensor:
        query = query * scale
        transposed, context, saved = key.transpose(1, 2), torch.empty_like(value), []
        is_needed = any(ctx.needs_input_grad)
        for rows, keys in _blocks(query.shape[1]):
            scores = torch.bmm(query[:, rows], transposed[:, :, keys])
            later = torch.ones(scores.shape[1], scores.shape[1], dtype=torch.bool).triu_(1)
            scores[:, :, rows].masked_fill_(later, -torch.inf)
            weights = scores.softmax(-1)
            mask = drop_mask(weights, dropout) if dropout else None
            context[:, rows] = torch.bmm(weights if mask is None else weights * mask, value[:, keys])
            if is_needed:
                saved.append((weights, mask))
        ctx.save_for_backward(query, key, value, *(tensor for pair in saved for tensor in pair))
        ctx.scale = scale
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *saved = ctx.saved_tensors
        transposed = value.transpose(1, 2)
        of_query = torch.empty_like(query)
        of_key, of_value = (torch.zeros_like(x, dtype=accumulation_dtype(x)) for x in (key, value))  # sums over blocks
        for (rows, keys), weights, mask in zip(_blocks(query.shape[1]), saved[::2], saved[1::2], strict=True):
            of_rows = gradient[:, rows]
            of_weights = torch.bmm(of_rows, transposed[:, :, keys])
            dropped = weights
            if mask is not None:
                of_weights, dropped = of_weights.mul_(mask), weights * mask
            of_value[:, keys] += torch.bmm(dropped.transpose(1, 2), of_rows)
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            of_query[:, rows] = torch.bmm(of_scores, key[:, keys])
            of_key[:, keys] += torch.bmm(of_scores.transpose(1, 2), query[:, rows])
        return of_query.mul_(ctx.scale), of_key.to(key.dtype), of_value.to(value.dtype), None, None


def _blocks(length: int) -> Iterator[tuple[slice, slice]]:
    """Yields blocks of queries of nearly equal size, each with the keys that its last query sees."""
    count = -(-length // _ROWS)
    for block in range(count):
        start, stop = block * length // count, (block + 1) * length // count
        yield slice(start, stop), slice(0, stop)
