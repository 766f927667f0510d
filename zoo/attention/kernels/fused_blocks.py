"""The kernel of dot-product softmax over blocks: a small dense attention for each block of queries and its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from zoo.attention.cpu import is_transformed
from zoo.attention.kernels.dtypes import unify_dtypes
from zoo.attention.kernels.fused import kernel_options, register_kernel, temperature_of
from zoo.attention.normalizers.soft import Softmax
from zoo.attention.scores.pairwise import Cosine, Dot, General, ScaledDot
from zoo.attention.supports.blocks import BlockSupport
from zoo.attention.supports.partition import Partition

if TYPE_CHECKING:
    from zoo.attention.attention import Attention

# Bytes. Freed memory of more than 32 MiB returns to the system, and every step has to allocate it again.
_LARGEST, _PART = 1 << 26, 1 << 23


@register_kernel(Dot, Softmax, BlockSupport)
@register_kernel(ScaledDot, Softmax, BlockSupport)
@register_kernel(General, Softmax, BlockSupport)
@register_kernel(Cosine, Softmax, BlockSupport)
def dot_softmax_in_blocks(
    attend: Attention,
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b h k d"],
    value: Float[Tensor, "b h k v"],
    support: BlockSupport,
    bias: Float[Tensor, "#b #h e"] | None,
) -> Float[Tensor, "b h q v"]:
    score: Any = attend.score
    temperature, options = temperature_of(attend), kernel_options(attend, query)
    query, key, value = unify_dtypes(score.transform_query(query), key, value)
    parts = support.layout.parts
    added = [None] * len(parts) if bias is None else support.layout.split(bias.to(query.dtype) / temperature)
    contexts = []
    for part, mask, more in zip(parts, support.masks, added, strict=True):
        if more is None and not options["dropout_p"] and _is_for_parts(part.cut, key):
            rows = _InParts.apply(part.cut.block_queries(query), key, value, mask, part.cut, options)
            contexts.append(rows)
            continue
        blocks = part.cut.block_queries(query), part.cut.block_keys(key), part.cut.block_keys(value)
        contexts.append(_attend(*blocks, mask, more, options))
    return support.zero_blind_queries(support.layout.to_queries(contexts), key)


def _is_for_parts(cut: Partition, key: Float[Tensor, "b h k d"]) -> bool:
    """Returns True if the copied keys of linked blocks are so large that a CPU should copy a few blocks at a time."""
    if cut.links is None or cut.order is not None or cut.before % cut.size or cut.span % cut.size:
        return False
    if key.device.type != "cpu" or is_transformed():
        return False
    return key.shape[:2].numel() * cut.count * cut.slots * key.shape[-1] * key.element_size() > _LARGEST


class _InParts(torch.autograd.Function):
    """Computes `_attend` for a few blocks at a time; the backward pass recomputes them and keeps no copied keys."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        cut: Partition,
        options: dict[str, Any],
    ) -> Tensor:
        ctx.save_for_backward(query, key, value)
        ctx.rest = mask, cut, options
        context = query.new_empty(*query.shape[:4], value.shape[-1])
        key, value = cut.pad_to_blocks(key), cut.pad_to_blocks(value)
        for some in _parts(cut, key):
            part = cut.part(some)
            near = part.block_keys(key), part.block_keys(value)
            context[:, :, some] = _attend(query[:, :, some], *near, _some(mask, some), None, options)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value = ctx.saved_tensors
        mask, cut, options = ctx.rest
        to_query = torch.empty_like(query)
        to_key, to_value = (x.new_zeros(*x.shape[:2], cut.room(), x.shape[-1]) for x in (key, value))
        of_keys = slice(cut.before, cut.before + key.shape[2])
        key, value = cut.pad_to_blocks(key), cut.pad_to_blocks(value)
        for some in _parts(cut, key):
            part = cut.part(some)
            near = query[:, :, some], part.block_keys(key), part.block_keys(value)
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in near]
                context = _attend(leaves[0], leaves[1], leaves[2], _some(mask, some), None, options)
                gradients = torch.autograd.grad(context, leaves, gradient[:, :, some])
            to_query[:, :, some] = gradients[0]
            cut.add_keys(to_key, gradients[1], some)
            cut.add_keys(to_value, gradients[2], some)
        return to_query, to_key[:, :, of_keys], to_value[:, :, of_keys], None, None, None


def _parts(cut: Partition, key: Float[Tensor, "b h k d"]) -> list[slice]:
    """Returns ranges of blocks whose copied keys take about `_PART` bytes."""
    bytes_per_part = key.shape[:2].numel() * cut.slots * key.shape[-1] * key.element_size()
    count = max(1, _PART // max(1, bytes_per_part))
    return [slice(start, min(start + count, cut.count)) for start in range(0, cut.count, count)]


def _some(mask: Bool[Tensor, "*#bh c r s"] | None, blocks: slice) -> Bool[Tensor, "*#bh _c r s"] | None:
    return None if mask is None else mask[..., blocks, :, :]


def _attend(
    query: Float[Tensor, "b h c r d"],
    key: Float[Tensor, "b h c s d"],
    value: Float[Tensor, "b h c s v"],
    mask: Bool[Tensor, "*#bh c r s"] | None,
    added: Float[Tensor, "#b #h c r s"] | None,
    options: dict[str, Any],
) -> Float[Tensor, "b h c r v"]:
    batch, heads, count, size, _ = query.shape
    if mask is not None:
        # Rows without keys are computed with all keys, so that nothing is NaN; their results are discarded.
        mask = mask | ~mask.any(-1, keepdim=True)
        mask = mask if mask.dim() == 5 else mask[None, None]
        added = mask if added is None else torch.where(mask, added, -torch.inf)
    if added is not None:
        added = _fold(added.expand(batch, -1, -1, -1, -1))
    context = F.scaled_dot_product_attention(_fold(query), _fold(key), _fold(value), attn_mask=added, **options)
    return context.reshape(batch, count, heads, size, value.shape[-1]).transpose(1, 2)


def _fold(x: Tensor) -> Tensor:
    """Folds (b,h,c,r,d) into (b c,h,r,d), so that masks are shared by the heads and not repeated for each."""
    return x.transpose(1, 2).flatten(0, 1)
