"""Exact attention in blocks: a readable implementation of the algorithm of fused kernels.

The softmax over all keys is computed block by block (Milakov & Gimelshein 2018, algorithm 3), with a running maximum m
and sums relative to it, which are rescaled whenever it rises. No n x n tensor is stored, forward or backward (Rabe &
Staats 2021; Dao et al. 2022, algorithms 1 and 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.attention.kernels.precision import wide
from zoo.attention.supports.dense import DenseSupport


class Attended(NamedTuple):
    """The context of each query, and the logarithm of the denominator of its softmax: -inf if it sees no key."""

    context: Float[Tensor, "b h q v"]
    log_sum: Float[Tensor, "b h q"]


def blockwise(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b h k d"],
    value: Float[Tensor, "b h k v"],
    support: DenseSupport | None = None,
    *,
    scale: float | None = None,
    block: int = 512,
) -> Attended:
    """Computes softmax(scale Q K^T) V in O(n) memory; the size of blocks does not change the result.

    Args:
        scale: Scale of the scores. Default: 1 / sqrt(d).
        block: Number of queries, and of keys, in a block.
    """
    if block < 1:
        raise ValueError(f"a block has at least 1 query and key, got {block}")
    support = DenseSupport() if support is None else support
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    query, key, value = _cleaned(query, key, value, support, block)
    return Attended(*_Blockwise.apply(query, key, value, support, scale, block))


def weights_between(
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b h k d"],
    log_sum: Float[Tensor, "b h q"],
    support: DenseSupport,
    queries: slice,
    keys: slice,
    *,
    scale: float | None = None,
) -> Float[Tensor, "b h rows columns"]:
    """Computes the weights exp(s_ij - log_sum_i) of some queries and keys, with `log_sum` from `blockwise`."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    mask = _part(support, queries, keys, query.shape[2], key.shape[2], query.device)
    scores = _scores(query[:, :, queries], key[:, :, keys], mask, scale)
    return _weights(scores, log_sum[:, :, queries].to(scores.dtype))


class _Blockwise(torch.autograd.Function):
    """Saves the inputs, the context and one number per query; the backward pass recomputes the weights."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, support: DenseSupport, scale: float, block: int
    ) -> tuple[Tensor, Tensor]:
        dtype = wide(query)
        context = query.new_empty(*query.shape[:3], value.shape[3], dtype=dtype)
        log_sum = query.new_empty(query.shape[:3], dtype=dtype)
        for rows in _blocks(query.shape[2], block):
            of_rows = query[:, :, rows]
            top = of_rows.new_full((*of_rows.shape[:3], 1), float("-inf"), dtype=dtype)
            total = torch.zeros_like(top)
            summed = context.new_zeros(*of_rows.shape[:3], value.shape[3])
            for columns, mask in _visible(support, rows, query.shape[2], key.shape[2], block, query.device):
                scores = _scores(of_rows, key[:, :, columns], mask, scale)
                higher = torch.maximum(top, scores.amax(-1, keepdim=True))
                # For a row without keys so far, the maximum is replaced by 0, because -inf - (-inf) would be NaN.
                base = higher.masked_fill(higher == float("-inf"), 0.0)
                part, kept = (scores - base).exp(), (top - base).exp()
                total = total * kept + part.sum(-1, keepdim=True)
                summed = summed * kept + part @ value[:, :, columns].to(dtype)
                top = higher
            context[:, :, rows] = summed / total.masked_fill(total == 0, 1.0)
            log_sum[:, :, rows] = (top + total.log()).squeeze(-1)
        ctx.save_for_backward(query, key, value, context, log_sum)
        ctx.support, ctx.scale, ctx.block = support, scale, block
        return context.to(value.dtype), log_sum.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Computes dS = P (dP - D), D_i = dO_i · O_i (Dao et al. 2022, algorithm 4), plus the gradient of log_sum."""
        query, key, value, context, log_sum = ctx.saved_tensors
        of_context, of_log_sum = (each.to(context.dtype) for each in gradients)
        support, scale, block = ctx.support, ctx.scale, ctx.block
        of_query, of_key, of_value = (torch.zeros_like(x, dtype=context.dtype) for x in (query, key, value))
        shared = of_log_sum - (of_context * context).sum(-1)
        for rows in _blocks(query.shape[2], block):
            of_rows = query[:, :, rows].to(context.dtype)
            for columns, mask in _visible(support, rows, query.shape[2], key.shape[2], block, query.device):
                weights = _weights(_scores(of_rows, key[:, :, columns], mask, scale), log_sum[:, :, rows])
                of_value[:, :, columns] += weights.transpose(-2, -1) @ of_context[:, :, rows]
                of_weights = of_context[:, :, rows] @ value[:, :, columns].to(context.dtype).transpose(-2, -1)
                of_scores = weights * (of_weights + shared[:, :, rows].unsqueeze(-1)) * scale
                of_query[:, :, rows] += of_scores @ key[:, :, columns].to(context.dtype)
                of_key[:, :, columns] += of_scores.transpose(-2, -1) @ of_rows
        found = (of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype))
        return (*found, None, None, None)


def _scores(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Float[Tensor, "b h rows columns"]:
    dtype = wide(query)
    scores = query.to(dtype) @ key.to(dtype).transpose(-2, -1) * scale
    return scores if mask is None else scores.masked_fill(~mask, float("-inf"))


def _weights(scores: Tensor, log_sum: Tensor) -> Float[Tensor, "b h rows columns"]:
    return (scores - log_sum.masked_fill(log_sum == float("-inf"), 0.0).unsqueeze(-1)).exp()


def _cleaned(
    query: Tensor, key: Tensor, value: Tensor, support: DenseSupport, block: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Sets queries, keys and values without a pair to zero, because 0 x NaN would be NaN."""
    if support.permitted is None:
        return query, key, value
    batch, heads, queries, keys = *query.shape[:3], key.shape[2]
    sees = torch.zeros(batch, heads, queries, 1, dtype=torch.bool, device=query.device)
    seen = torch.zeros(batch, heads, keys, 1, dtype=torch.bool, device=query.device)
    for rows in _blocks(queries, block):
        for columns, mask in _visible(support, rows, queries, keys, block, query.device):
            assert mask is not None
            sees[:, :, rows] |= mask.any(-1, keepdim=True)
            seen[:, :, columns] |= mask.any(-2).unsqueeze(-1)
    return query.where(sees, 0.0), key.where(seen, 0.0), value.where(seen, 0.0)


def _blocks(length: int, block: int) -> Iterator[slice]:
    return (slice(start, min(start + block, length)) for start in range(0, length, block))


def _visible(
    support: DenseSupport, rows: slice, queries: int, keys: int, block: int, device: torch.device
) -> Iterator[tuple[slice, Bool[Tensor, "#b #h #rows #columns"] | None]]:
    """Yields the blocks of keys that causality lets these queries see, each with its mask."""
    last = rows.stop + _ahead(support, queries, keys) if support.causal else keys
    for columns in _blocks(min(last, keys), block):
        yield columns, _part(support, rows, columns, queries, keys, device)


def _part(
    support: DenseSupport, rows: slice, columns: slice, queries: int, keys: int, device: torch.device
) -> Bool[Tensor, "#b #h #rows #columns"] | None:
    """Returns the mask of some queries and some keys."""
    permitted = support.permitted
    if permitted is not None:
        permitted = permitted[:, :, rows] if permitted.shape[2] > 1 else permitted
        permitted = permitted[..., columns] if permitted.shape[3] > 1 else permitted
        permitted = permitted.to(device)
    if not support.causal:
        return permitted
    at = torch.arange(queries, device=device)[rows] + _ahead(support, queries, keys)
    before = (torch.arange(keys, device=device)[columns] <= at.unsqueeze(1))[None, None]
    return before if permitted is None else permitted & before


def _ahead(support: DenseSupport, queries: int, keys: int) -> int:
    """Returns the position of the first query."""
    return keys - queries - support.later
