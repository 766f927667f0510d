"""A cache of tensors that depend only on sizes, shared by all sites and steps, in training and inference."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

_Made = TypeVar("_Made")


def may_be_cached() -> bool:
    """Returns True if tensors may be cached: not during tracing, whose tensors are valid in the traced graph only."""
    return not torch.compiler.is_compiling() and type(torch.empty(0)) is Tensor


def outside_inference_mode(make: Callable[[], _Made]) -> _Made:
    """Calls `make` outside `inference_mode`, so that a backward pass can use the tensors too."""
    with torch.inference_mode(False):
        return make()


def cache_recent(count: int) -> Callable[[Callable[..., _Made]], Callable[..., _Made]]:
    """Decorates a function of sizes with a cache of its `count` most recently used results.

    As with `functools.lru_cache`, `__wrapped__` bypasses the cache and `cache_clear` empties it.
    """

    def decorate(make: Callable[..., _Made]) -> Callable[..., _Made]:
        @lru_cache(count)
        def compute(*sizes: object) -> _Made:
            return outside_inference_mode(lambda: make(*sizes))

        @wraps(make)
        def get(*sizes: object) -> _Made:
            return compute(*sizes) if may_be_cached() else make(*sizes)

        get.cache_clear = compute.cache_clear  # type: ignore[attr-defined]
        return get

    return decorate


def cache_on(known: dict[str, Any], name: str, sizes: tuple[Any, ...], make: Callable[[], _Made]) -> _Made:
    """Returns the result of `make` from the cache `known` of an object, or computes it for new sizes."""
    if not may_be_cached():
        return make()
    entry = known.get(name)
    if entry is None or entry[0] != sizes:
        entry = known[name] = (sizes, outside_inference_mode(make))
    return entry[1]


def is_eager_cpu(x: Shaped[Tensor, "..."]) -> bool:
    """Returns True if values of a tensor can be read without waiting for a device or breaking a compiled graph."""
    return type(x) is Tensor and x.device.type == "cpu" and not torch.compiler.is_compiling()


def none_if_all(x: Bool[Tensor, "..."]) -> Bool[Tensor, "..."] | None:
    """Returns None if all values are true and can be read, else the tensor."""
    return None if is_eager_cpu(x) and x.all() else x
