"""Counts the memory that an operation takes, which is the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Memory(TorchDispatchMode):
    """Bytes of the tensors that are alive at once, at most, of those that operations make inside the `with`."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        found = func(*args, **(kwargs or {}))
        self._alive = {at: each for at, each in self._alive.items() if not each[0].expired()}
        for x in tree_leaves(found):
            if isinstance(x, Tensor) and (at := x.untyped_storage()._cdata) not in given:
                self._alive.setdefault(at, (StorageWeakRef(x.untyped_storage()), x.untyped_storage().nbytes()))
        self.peak = max(self.peak, sum(size for _, size in self._alive.values()))
        return found


def peak(function: Callable[[], Any]) -> int:
    """Bytes, of a call and the backward pass of what it gives."""
    with Memory() as memory:
        output = function()
        if output.requires_grad:
            output.sum().backward()
    return memory.peak


def growth(function: Callable[[int], Callable[[], Any]], short: int, long: int) -> float:
    """The exponent of peak memory over length: 1 where it is linear. What is built for a length is not counted."""
    first, second = (peak(function(length)) for length in (short, long))
    return float(torch.tensor(second / first).log() / torch.tensor(long / short).log())
