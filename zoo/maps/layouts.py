"""Maps over blocks of a sequence, or around positions of it, as maps of all its queries and keys."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.attention.observing.record import AttentionMap
from zoo.attention.supports.blocks import BlockSupport
from zoo.attention.supports.local import LocalSupport
from zoo.maps.labelled import MEAN


def laid_out(found: AttentionMap, index: int) -> tuple[Float[Tensor, "*step h q k"], Bool[Tensor, "*step #h q k"]]:
    """The weights of one example of a batch, and which of the pairs exist; at each step, where there are steps."""
    has_steps = "step" in found.axes
    supports = found.support if isinstance(found.support, list) else [found.support]
    laid, masks = [], []
    for step, support in enumerate(supports):
        pairs = (found.weights[step] if has_steps else found.weights).detach()[index : index + 1]
        for dim, axis in enumerate(found.axes[2:], start=1):
            if axis in found.lengths:  # without what shorter steps were filled up with
                pairs = pairs.narrow(dim, 0, found.lengths[axis][step])
        one, sizes = _example(found, support, index)
        laid.append(one.to_dense(pairs, *sizes)[0].cpu())
        masks.append(one.to_dense(torch.ones_like(pairs), *sizes)[0].cpu() > 0)
    if not has_steps:
        return laid[0], masks[0]
    queries, keys = (max(each.shape[dim] for each in laid) for dim in (1, 2))
    missing = [(0, keys - each.shape[2], 0, queries - each.shape[1]) for each in laid]
    return (
        torch.stack([F.pad(each, by) for each, by in zip(laid, missing, strict=True)]),
        torch.stack([F.pad(each, by, value=False) for each, by in zip(masks, missing, strict=True)]),
    )


def _example(found: AttentionMap, support: object, index: int) -> tuple[BlockSupport | LocalSupport, tuple[int, int]]:
    """The support of one example and of the heads that were kept, and how many queries and keys it has."""
    if isinstance(support, BlockSupport):
        masks = tuple(
            each if each is None or each.dim() == 3 else _chosen(found, each, index) for each in support.masks
        )
        return BlockSupport(support.layout, masks), (support.layout.queries, support.layout.keys)
    if not isinstance(support, LocalSupport):
        raise ValueError(f"{found.site}: maps over {type(support).__name__} cannot be labelled")
    if found.heads == (MEAN,) and support.key_at.shape[1] > 1:
        raise ValueError(f"{found.site}: each head looks at keys of its own; label all, with heads='mean'")
    one = replace(
        support,
        centre=_chosen(found, support.centre, index),
        key_at=_chosen(found, support.key_at, index),
        permitted=_chosen(found, support.permitted, index),
    )
    return one, (support.key_at.shape[2], support.keys)


def _chosen(found: AttentionMap, x: Tensor, index: int) -> Tensor:
    """Of (b,h,...), where either may be 1 for all."""
    x = x[index : index + 1] if len(x) > 1 else x
    if x.shape[1] == 1:
        return x
    return x.any(1, keepdim=True) if found.heads == (MEAN,) else x[:, list(found.heads)]
