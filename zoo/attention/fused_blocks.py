"""The kernel of dot-product softmax over blocks: each block of queries and its keys are one small dense attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.attention.blocks import BlockSupport
from zoo.attention.fused import fuses
from zoo.attention.normalisers import Softmax
from zoo.attention.scores import Cosine, Dot, General, ScaledDot

if TYPE_CHECKING:
    from zoo.attention.attend import Attend


@fuses(Dot, Softmax, BlockSupport)
@fuses(ScaledDot, Softmax, BlockSupport)
@fuses(General, Softmax, BlockSupport)
@fuses(Cosine, Softmax, BlockSupport)
def dot_softmax_in_blocks(
    attend: Attend,
    query: Float[Tensor, "b h q d"],
    key: Float[Tensor, "b h k d"],
    value: Float[Tensor, "b h k v"],
    support: BlockSupport,
    bias: Float[Tensor, "#b #h e"] | None,
) -> Float[Tensor, "b h q v"]:
    temperature = attend.normalise.temperature
    options = {
        "dropout_p": attend.dropout.p if attend.dropout.training else 0.0,
        "scale": attend.score.scale(query.shape[-1]) / temperature,
    }
    query, parts = attend.score.of_query(query), support.layout.parts
    added = [None] * len(parts) if bias is None else support.layout.split(bias.to(query.dtype) / temperature)
    contexts = []
    for part, mask, more in zip(parts, support.masks, added, strict=True):
        blocks = part.cut.of_queries(query), part.cut.of_keys(key), part.cut.of_keys(value)
        contexts.append(_attended(*blocks, mask, more, options))
    return support.clean_queries(support.layout.to_queries(contexts), key)


def _attended(
    query: Float[Tensor, "b h c r d"],
    key: Float[Tensor, "b h c s d"],
    value: Float[Tensor, "b h c s v"],
    mask: Bool[Tensor, "*#bh c r s"] | None,
    added: Float[Tensor, "#b #h c r s"] | None,
    options: dict[str, Any],
) -> Float[Tensor, "b h c r v"]:
    batch, heads, count, size, _ = query.shape
    if mask is not None:
        # Rows without keys are computed as if they had all, so that nothing is NaN; no one reads them.
        mask = mask | ~mask.any(-1, keepdim=True)
        mask = mask if mask.dim() == 5 else mask[None, None]
        added = mask if added is None else torch.where(mask, added, -torch.inf)
    if added is not None:
        added = _folded(added.expand(batch, -1, -1, -1, -1))
    context = F.scaled_dot_product_attention(_folded(query), _folded(key), _folded(value), attn_mask=added, **options)
    return context.reshape(batch, count, heads, size, value.shape[-1]).transpose(1, 2)


def _folded(x: Tensor) -> Tensor:
    """(b,h,c,r,d) -> (b c,h,r,d): what all heads share, masks above all, is not repeated for each."""
    return x.transpose(1, 2).flatten(0, 1)
