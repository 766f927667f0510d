"""Communication of the processes that share a run. A process on its own is rank 0 of 1."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torchmetrics import Metric

T = TypeVar("T")


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if _together() else 0


def world() -> int:
    """The number of processes."""
    return dist.get_world_size() if _together() else 1


def is_first() -> bool:
    """Whether this is the process that writes files and prints."""
    return rank() == 0


def wait() -> None:
    """Waits until all processes have called this."""
    if _together():
        dist.barrier()


def any_of(flag: bool) -> bool:
    """Whether the flag is true in any process; all get the same answer."""
    if not _together():
        return flag
    found = torch.tensor(int(flag))
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return bool(found)


def first_says(value: T) -> T:
    """The value that the first process passes, in every process."""
    if not _together():
        return value
    said: list[T] = [value]
    dist.broadcast_object_list(said)
    return said[0]


def all_say(value: T) -> list[T]:
    """The values that the processes pass, in the order of their numbers, in every process."""
    if not _together():
        return [value]
    said: list[T] = [value] * world()
    dist.all_gather_object(said, value)
    return said


def share(values: Tensor) -> Tensor:
    """This process's part of a tensor that all of them have: each row goes to one process, and none is padded."""
    return values[rank() :: world()] if _together() else values


def mean_loss(total: Tensor, count: int) -> Tensor:
    """Scales a sum over this process's targets so that the mean over processes is the mean over all targets.

    A mean of the processes' means would give more weight to the targets of a process that has few.
    """
    if not _together():
        return total / max(1, count)
    targets = torch.tensor(count, dtype=torch.int64, device=total.device)
    dist.all_reduce(targets)
    return total * world() / targets.clamp(min=1)


def sum_of(value: Tensor) -> Tensor:
    """The sum over all processes, without gradient."""
    value = value.detach().clone()
    if _together():
        dist.all_reduce(value)
    return value


class MeanOfTargets(Metric):
    """A mean kept as a sum and a count in double precision, so that it does not depend on the number of processes."""

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, values: Tensor) -> None:
        self.total += values.detach().double().sum()
        self.count += values.numel()

    def compute(self) -> Tensor:
        return (self.total / self.count).float()


def _together() -> bool:
    return dist.is_available() and dist.is_initialized()
