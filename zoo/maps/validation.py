"""Checks the content of a folder of maps: the fields of its index, and the sizes and positions in a map's arrays."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from zoo.attention.recording.attention_map import MEAN
from zoo.maps.labelled_map import LabelledMap
from zoo.validation import COUNT, Predicate, ValidationError

PARTS = ("weights", "source", "target", "permitted", "gold")
_HEAD = Predicate("the number of a head", lambda value: type(value) is int and value >= MEAN)
_ONE_MAP = {
    "layer": COUNT,
    "axes": [str],
    "heads": [_HEAD],
    "labels": {str: COUNT},
    "nouns": {str: str},
    "arrays": {str: str},
}
EXAMPLE = {"id": str, "about": dict, "maps": [_ONE_MAP]}
INDEX: dict[str, Any] = {
    "model": str,
    "checkpoint": (str, None),
    "about": dict,
    "layers": [str],
    "heads": str,
    "cut": {str: COUNT},
    "silent": {str: str},
    "labels": [[str]],
    "examples": [{"id": str}],
}
"""The other fields of an example are checked when it is read, since there may be many examples."""


def check(found: LabelledMap) -> None:
    """Checks that the arrays and labels of a map fit each other.

    Raises:
        ValidationError: They do not; the message says which.
    """
    axes, shape = found.axes, tuple(found.weights.shape)
    if len(axes) != len(shape) or len(set(axes)) != len(axes) or not found.weights.is_floating_point():
        raise ValidationError(f"its weights are {_describe(found.weights)}, and its axes are {', '.join(axes)}")
    sizes = dict(zip(axes, shape, strict=True))
    sizes |= {axis: len(labels) for axis, labels in found.labels.items() if axis not in axes}
    for axis, labels in found.labels.items():
        _expect(len(labels) == sizes[axis], f"it has {sizes[axis]:,} along {axis}, and {len(labels):,} labels for them")
    if found.is_gate:
        _expect(not found.heads and set(axes) <= set(found.labels), "it has heads, or lacks labels, as no gate does")
        return
    _expect(len(found.heads) == sizes["head"], f"it has {sizes['head']} heads, and {len(found.heads)} numbers for them")
    needed = {*found.query_axes, *found.key_axes}
    _expect(needed <= set(found.labels), f"it lacks labels for {', '.join(sorted(needed - set(found.labels)))}")
    if found.has_edges:
        _expect(axes in (("edge", "head"), ("step", "edge", "head")), f"its axes are {', '.join(axes)}")
        for name, ends in (("source", found.source), ("target", found.target)):
            _check_ends(name, ends, sizes["edge"], len(found.labels[name]))
        _expect(found.permitted is None, "it has edges and a mask of pairs")
    else:
        _expect(axes[0] == "head" and axes[-1] == "key", f"its axes are {', '.join(axes)}")
        _expect(found.source is None and found.target is None, "it has edges, and its axes do not say so")
    pairs = tuple(size for axis, size in sizes.items() if axis in axes and axis != "head")
    for name, mask, full in (("permitted", found.permitted, shape), ("gold", found.gold, pairs)):
        fits = mask is None or (mask.dtype == torch.bool and _broadcasts(tuple(mask.shape), full))
        _expect(fits, f"{name} is {_describe(mask)}, and does not fit weights of {shape}")


def _check_ends(name: str, ends: Tensor | None, edges: int, count: int) -> None:
    if ends is None or ends.dtype not in (torch.int32, torch.int64) or tuple(ends.shape) != (edges,):
        raise ValidationError(f"{name} is {_describe(ends)}, and there are {edges:,} edges")
    if edges and not 0 <= int(ends.min()) <= int(ends.max()) < count:
        raise ValidationError(f"{name} has {int(ends.min())} to {int(ends.max())}, and there are {count:,} labels")


def _broadcasts(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    """Returns whether one shape can be broadcast to the other."""
    return len(shape) <= len(full) and all(a in (1, b) for a, b in zip(shape[::-1], full[::-1], strict=False))


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise ValidationError(message)


def _describe(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{str(tensor.dtype)[6:]} of {tuple(tensor.shape)}"
