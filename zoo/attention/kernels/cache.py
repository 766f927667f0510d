"""A cache of tensors that depend only on sizes, shared by all sites and steps, in training and inference."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

_Made = TypeVar("_Made")


def may_be_kept() -> bool:
    """Returns True if tensors may be cached: not during tracing, whose tensors are valid in the traced graph only."""
    return not torch.compiler.is_compiling() and type(torch.empty(0)) is Tensor


def for_later(make: Callable[[], _Made]) -> _Made:
    """Calls `make` outside `inference_mode`, so that a backward pass can use the tensors too."""
    with torch.inference_mode(False):
        return make()


def kept(count: int) -> Callable[[Callable[..., _Made]], Callable[..., _Made]]:
    """Decorates a function of sizes with a cache of its `count` most recently used results.

    As with `functools.lru_cache`, `__wrapped__` bypasses the cache and `cache_clear` empties it.
    """

    def decorate(make: Callable[..., _Made]) -> Callable[..., _Made]:
        @lru_cache(count)
        def found(*sizes: object) -> _Made:
            return for_later(lambda: make(*sizes))

        @wraps(make)
        def of(*sizes: object) -> _Made:
            return found(*sizes) if may_be_kept() else make(*sizes)

        of.cache_clear = found.cache_clear  # type: ignore[attr-defined]
        return of

    return decorate


def once(known: dict[str, Any], name: str, sizes: tuple[Any, ...], make: Callable[[], _Made]) -> _Made:
    """Returns the result of `make` from the cache `known` of an object, or computes it for new sizes."""
    if not may_be_kept():
        return make()
    found = known.get(name)
    if found is None or found[0] != sizes:
        found = known[name] = (sizes, for_later(make))
    return found[1]


def can_be_read(x: Shaped[Tensor, "..."]) -> bool:
    """Returns True if values of a tensor can be read without waiting for a device or breaking a compiled graph."""
    return type(x) is Tensor and x.device.type == "cpu" and not torch.compiler.is_compiling()


def unless_all(x: Bool[Tensor, "..."]) -> Bool[Tensor, "..."] | None:
    """Returns None if all values are true and can be read, else the tensor."""
    return None if can_be_read(x) and x.all() else x
