"""Tensors that follow from sizes alone: made once, for all sites and steps, and for training after inference."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

import torch
from torch import Tensor

_Made = TypeVar("_Made")


def may_be_kept() -> bool:
    """Whether tensors that are made now are numbers: not while a graph is traced, whose tensors end with it."""
    return not torch.compiler.is_compiling() and type(torch.empty(0)) is Tensor


def for_later(make: Callable[[], _Made]) -> _Made:
    """What `make` gives, of use to a backward pass too: the tensors of `inference_mode` are not."""
    with torch.inference_mode(False):
        return make()


def kept(count: int) -> Callable[[Callable[..., _Made]], Callable[..., _Made]]:
    """Decorates a function of sizes: the `count` results that were asked for last are kept.

    As with `functools.lru_cache`, `__wrapped__` makes one anew and `cache_clear` forgets them.
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
