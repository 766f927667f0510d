"""Causal attention on CPUs: no pair beyond the diagonal's blocks is computed, and no random number drawn for one.

PyTorch's kernel for CPUs knows no dropout: with it all n x n weights are computed and a float is drawn for each, which
takes longer than both products. Here queries go in blocks, each against the keys up to its last query, and dropout's
mask is that of `zoo.attention.dropout`. What the backward pass needs is kept: 8 bytes for a pair that exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.attention.dropout import drop_mask
from zoo.attention.kernels.precision import wide

_ROWS = 48
"""Queries of a block: fewer make products slower, more compute pairs that do not exist."""


def causal_attention(
    query: Float[Tensor, "b h n d"],
    key: Float[Tensor, "b h n d"],
    value: Float[Tensor, "b h n v"],
    scale: float,
    dropout: float,
) -> Float[Tensor, "b h n v"]:
    """dropout(softmax(scale Q K^T)) V over the keys up to each query's own."""
    batch, heads = query.shape[:2]
    context = _Causal.apply(query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1), scale, dropout)
    return context.unflatten(0, (batch, heads))  # type: ignore[no-any-return]


class _Causal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float, dropout: float) -> Tensor:
        query = query * scale
        transposed, context, kept = key.transpose(1, 2), torch.empty_like(value), []
        is_needed = any(ctx.needs_input_grad)
        for rows, keys in _blocks(query.shape[1]):
            scores = torch.bmm(query[:, rows], transposed[:, :, keys])
            later = torch.ones(scores.shape[1], scores.shape[1], dtype=torch.bool).triu_(1)
            scores[:, :, rows].masked_fill_(later, -torch.inf)
            weights = scores.softmax(-1)
            mask = drop_mask(weights, dropout) if dropout else None
            context[:, rows] = torch.bmm(weights if mask is None else weights * mask, value[:, keys])
            if is_needed:
                kept.append((weights, mask))
        ctx.save_for_backward(query, key, value, *(each for pair in kept for each in pair))
        ctx.scale = scale
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *kept = ctx.saved_tensors
        transposed = value.transpose(1, 2)
        of_query = torch.empty_like(query)
        of_key, of_value = (torch.zeros_like(x, dtype=wide(x)) for x in (key, value))  # sums over blocks
        for (rows, keys), weights, mask in zip(_blocks(query.shape[1]), kept[::2], kept[1::2], strict=True):
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
    """Queries, and the keys that any of them sees; blocks are as equal as can be."""
    count = -(-length // _ROWS)
    for block in range(count):
        start, stop = block * length // count, (block + 1) * length // count
        yield slice(start, stop), slice(0, stop)
