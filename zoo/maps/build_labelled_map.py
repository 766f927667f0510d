"""Makes the map of one example from a recorded one: selects it from the batch, removes padding, and adds labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from zoo.attention.recording.attention_map import MEAN, AttentionMap
from zoo.attention.supports.edges import EdgeSupport
from zoo.attention.supports.support import Support
from zoo.errors import did_you_mean
from zoo.maps.labelled_map import LabelledMap

Heads = Literal["each", "mean"]
_MOST_DENSE = 2**24
"""Maximum number of weights of all queries and keys, of all heads, of a map whose layout is sparse."""
Labels = Mapping[str, Sequence[str]]


def label_map(
    found: AttentionMap,
    axis_labels: Labels,
    *,
    gold: Bool[Tensor, "..."] | None = None,
    index_in_batch: int = 0,
    heads: Heads = "each",
    layer: int = 0,
    nouns: Mapping[str, str] | None = None,
) -> LabelledMap:
    """Returns the map of one example with labels.

    A map over blocks of a sequence or windows around positions becomes a map of all queries and keys, most of whose
    pairs are not permitted. If that would have more than `_MOST_DENSE` numbers, a map over blocks becomes a list of its
    pairs, as edges from keys (`source`) to queries (`target`).

    Args:
        found: The recorded map of a batch.
        axis_labels: Labels along query and key (and step), along source and target, or along the axes of a gate.
            Default: numbers from 0. If an axis is longer than its labels, the rest is removed as padding: the keys that
            the mask forbids, and the queries at the same positions in self-attention, else at the end. Gates have no
            padding.
        gold: Mask of the pairs where attention belongs, with the axes of the weights except for heads, with or without
            the batch. For edges, it has the order of the support: see `edge_gold`.
        index_in_batch: Index of the example in the batch.
        heads: Whether each head is kept, or only their mean.
        layer: Number of the site in the order of the model.
        nouns: Noun for the labels of an axis.

    Raises:
        ValueError: Labels or gold do not fit the map.
    """
    if heads not in ("each", "mean"):
        raise ValueError(f"heads is 'each' or 'mean', not {heads!r}")
    make, known = _kind(found)
    known |= {"step"} & set(found.axes)
    for axis in [*axis_labels, *(nouns or {})]:
        if axis not in known:
            raise ValueError(f"{found.site} has no axis {axis!r}. {did_you_mean(axis, known)}")
    one = make(found, axis_labels, gold, index_in_batch)
    if heads == "mean":
        one = mean_of_heads(one)
    ends = {"query": "target", "key": "source"} if one.has_edges and not found.has_edges else {}
    of_axes = {ends.get(axis, axis): noun for axis, noun in (nouns or {}).items()}
    return replace(one, layer=layer, nouns={axis: noun for axis, noun in of_axes.items() if axis in one.labels})


def edge_gold(gold: Bool[Tensor, " edges"], support: EdgeSupport) -> Bool[Tensor, " e"]:
    """Converts gold from the order of the caller's list of edges to that of the support. Added self-loops are False."""
    order = support.order.to(gold.device)
    aligned = torch.zeros(len(order), dtype=torch.bool, device=gold.device)
    aligned[order >= 0] = gold[order[order >= 0].long()]
    return aligned


def mean_of_heads(one: LabelledMap) -> LabelledMap:
    """Returns the mean of the heads in fp32, as one head. A pair is permitted if any head may attend to it.

    A gate is returned unchanged.
    """
    if one.is_gate:
        return one
    permitted = None if one.permitted is None else one.permitted.any(0, keepdim=True)
    return replace(one, weights=one.head().unsqueeze(one.axes.index("head")), heads=(MEAN,), permitted=permitted)


def _kind(found: AttentionMap) -> tuple[Callable[..., LabelledMap], set[str]]:
    """Returns the function that labels such a map, and the axes that can have labels."""
    if all(each.has_pairs for each in found.steps()):
        return (_edges, {"source", "target"}) if found.has_edges else (_dense, {"query", "key"})
    if found.axes in (("batch", "channel"), ("batch", "height", "width")):
        return _gate, set(found.axes[1:])
    axes = ", ".join(found.axes)
    raise ValueError(f"{found.site} has the axes {axes}: only queries, keys, edges, channels and positions have labels")


def _edges(found: AttentionMap, labels: Labels, gold: Tensor | None, index: int) -> LabelledMap:
    if index:
        raise ValueError(f"{found.site} has edges and no batch axis, so index_in_batch must be 0, not {index}")
    first, *others = found.steps()
    if any(other.support is not first.support for other in others):
        raise ValueError(f"{found.site} has different edges at different steps, which cannot be one map")
    pairs = first.layout.pairs()
    assert pairs is not None
    target, source = pairs.cpu()
    targets, sources = first.layout.sizes(first.weights)
    sizes = {"source": sources, "target": targets}
    if "step" in found.axes:
        sizes["step"] = found.weights.shape[0]
    for axis, size in sizes.items():
        if axis in labels and len(labels[axis]) != size:
            raise ValueError(f"{found.site} has {size} along {axis!r}, and {len(labels[axis])} labels")
    if gold is not None and gold.shape[-1] != len(source):
        raise ValueError(f"{found.site} has {len(source)} edges, gold has {gold.shape[-1]}: see edge_gold")
    return LabelledMap(
        site=found.site,
        layer=0,
        weights=found.weights.detach().cpu(),
        axes=found.axes,
        heads=found.heads,
        labels={axis: labels[axis] if axis in labels else _numbers(range(size)) for axis, size in sizes.items()},
        source=source,
        target=target,
        gold=None if gold is None else gold.cpu(),
    )


def _dense(found: AttentionMap, labels: Labels, gold: Tensor | None, index: int) -> LabelledMap:
    batch = found.axes.index("batch")
    if not 0 <= index < found.weights.shape[batch]:
        raise ValueError(f"{found.site} has a batch of {found.weights.shape[batch]}, there is no example {index}")
    if (pairs := _many_pairs(found)) is not None:
        return _list_pairs(found.example(index), pairs, labels, gold, index)
    weights, permitted = _laid_out(found, index)
    axes: tuple[str, ...] = ("head", "query", "key")
    if "step" in found.axes:
        weights, permitted = weights.movedim(1, 0), permitted.movedim(1, 0)
        axes = ("head", "step", "query", "key")
        if weights.shape[2] == 1 and "query" not in labels:  # the step is the query of a decoder
            weights, permitted, axes = weights.squeeze(2), permitted.squeeze(2), ("head", "step", "key")
    kept = _find_real(found.site, axes[1:], permitted, labels)
    if gold is not None:
        gold = _cut_gold(found.site, gold.cpu(), weights.shape[1:], list(kept.values()), index)
    for dim, positions in enumerate(kept.values(), start=1):
        if len(positions) < weights.shape[dim]:
            weights, permitted = weights.index_select(dim, positions), permitted.index_select(dim, positions)
    return LabelledMap(
        site=found.site,
        layer=0,
        weights=weights,
        axes=axes,
        heads=found.heads,
        labels={axis: labels[axis] if axis in labels else _numbers(kept[axis].tolist()) for axis in axes[1:]},
        permitted=None if permitted.all() else permitted,
        gold=gold,
    )


def _many_pairs(found: AttentionMap) -> Int[Tensor, "2 e"] | None:
    """Returns query and key of each pair of a sparse map that is too large to be made dense; None of other maps."""
    if "step" in found.axes or not isinstance(found.support, Support):
        return None
    sizes = found.layout.sizes(found.weights)
    is_large = prod(sizes) * max(1, len(found.heads)) > _MOST_DENSE
    return found.layout.pairs() if is_large else None


def _list_pairs(
    found: AttentionMap, pairs: Int[Tensor, "2 e"], labels: Labels, gold: Tensor | None, index: int
) -> LabelledMap:
    """Returns the map of one example as a list of its pairs; a pair is there if any head has it."""
    exists = found.layout.exists(found.weights).reshape(-1, pairs.shape[1]).any(0) & (pairs >= 0).all(0)
    target, source = pairs[:, exists].cpu().int()
    if gold is not None:
        gold = gold.cpu()
        gold = gold[index if len(gold) > 1 else 0] if gold.dim() == 3 else gold
        gold = gold[target.long(), source.long()].bool()
    names: dict[str, Sequence[str]] = {}
    for axis, own, ends, size in zip(
        ("target", "source"), ("query", "key"), (target, source), found.layout.sizes(found.weights), strict=True
    ):
        names[axis] = labels[own] if own in labels else _numbers(range(size))
        if len(ends) and int(ends.max()) >= len(names[axis]):
            raise ValueError(f"{found.site} has {int(ends.max()) + 1} along {own!r}, and {len(names[axis])} labels")
    weights = found.weights[0][:, exists].T.detach().cpu().contiguous()
    return LabelledMap(
        site=found.site,
        layer=0,
        weights=weights,
        axes=("edge", "head"),
        heads=found.heads,
        labels=names,
        source=source,
        target=target,
        gold=gold,
    )


def _gate(found: AttentionMap, labels: Labels, gold: Tensor | None, index: int) -> LabelledMap:
    if not 0 <= index < len(found.weights):
        raise ValueError(f"{found.site} has a batch of {len(found.weights)}, there is no example {index}")
    weights, axes = found.weights.detach()[index].cpu(), found.axes[1:]
    for axis, size in zip(axes, weights.shape, strict=True):
        if axis in labels and len(labels[axis]) != size:
            raise ValueError(f"{found.site} has {size} along {axis!r}, and {len(labels[axis])} labels")
    if gold is not None:
        gold = _cut_gold(found.site, gold.cpu(), weights.shape, [torch.arange(size) for size in weights.shape], index)
    return LabelledMap(
        site=found.site,
        layer=0,
        weights=weights,
        axes=axes,
        heads=(),
        labels={
            axis: labels[axis] if axis in labels else _numbers(range(size))
            for axis, size in zip(axes, weights.shape, strict=True)
        },
        gold=gold,
    )


def _laid_out(found: AttentionMap, index: int) -> tuple[Float[Tensor, "*step h q k"], Bool[Tensor, "*step #h q k"]]:
    """Returns the weights of one example of a batch and the mask of its permitted pairs, by step if there are steps."""
    steps = [each.example(index) for each in found.steps()]
    laid = [each.dense()[0].detach().cpu() for each in steps]
    masks = [each.pair_mask()[0].cpu() for each in steps]
    # one mask for all heads where they agree at every step
    heads = max(len(mask) for mask in masks)
    masks = [mask.expand(heads, *weights.shape[1:]) for mask, weights in zip(masks, laid, strict=True)]
    if "step" not in found.axes:
        return laid[0], masks[0]
    queries, keys = (max(each.shape[dim] for each in laid) for dim in (1, 2))
    missing = [(0, keys - each.shape[2], 0, queries - each.shape[1]) for each in laid]
    return (
        torch.stack([F.pad(each, by) for each, by in zip(laid, missing, strict=True)]),
        torch.stack([F.pad(each, by, value=False) for each, by in zip(masks, missing, strict=True)]),
    )


def _find_real(
    site: str, axes: tuple[str, ...], permitted: Bool[Tensor, "#h ... k"], labels: Labels
) -> dict[str, Int[Tensor, " _"]]:
    """Returns the positions along each axis that are not padding."""
    kept: dict[str, Tensor] = {}
    for dim, axis in enumerate(axes, start=1):
        size = permitted.shape[dim]
        seen = permitted.movedim(dim, 0).flatten(1).any(1).nonzero().flatten()
        wanted = len(labels[axis]) if axis in labels else None
        if wanted == size or (wanted is None and axis == "step"):
            kept[axis] = torch.arange(size)
        elif wanted is None or wanted == len(seen):
            kept[axis] = seen
        elif wanted > size or axis == "key":
            raise ValueError(f"{site} has {size} along {axis!r}, {len(seen)} of them permitted, and {wanted} labels")
        else:  # no mask tells which queries and steps are padding
            kept[axis] = torch.arange(wanted)
    is_self = "query" in labels and permitted.shape[-2] == permitted.shape[-1]
    if is_self and "query" in kept and len(kept["query"]) == len(kept["key"]):
        kept["query"] = kept["key"]  # padding may also be at the start
    return kept


def _cut_gold(
    site: str, gold: Tensor, sizes: Sequence[int], kept: Sequence[Int[Tensor, " _"]], index: int
) -> Bool[Tensor, "..."]:
    misfit = f"{site}: gold of shape {tuple(gold.shape)} does not fit a map of shape {tuple(sizes)}"
    if gold.dim() == len(sizes) + 1:
        gold = gold[index if len(gold) > 1 else 0]
    if gold.dim() != len(sizes):
        raise ValueError(misfit)
    for dim, positions in enumerate(kept):
        if gold.shape[dim] == sizes[dim]:
            gold = gold.index_select(dim, positions)
        elif gold.shape[dim] != len(positions):
            raise ValueError(misfit)
    return gold.bool()


def _numbers(positions: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(str, positions))
