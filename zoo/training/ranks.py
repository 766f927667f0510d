"""The processes that share a run, as the rest of the program sees them: one of one, if nobody else is there."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torchmetrics import Metric

T = TypeVar("T")


def rank() -> int:
    return dist.get_rank() if _together() else 0


def world() -> int:
    return dist.get_world_size() if _together() else 1


def is_first() -> bool:
    """The one that writes files and speaks."""
    return rank() == 0


def wait() -> None:
    """Until all are here."""
    if _together():
        dist.barrier()


def any_of(flag: bool) -> bool:
    """Whether it holds in any process; all of them get the same answer."""
    if not _together():
        return flag
    found = torch.tensor(int(flag))
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return bool(found)


def first_says(value: T) -> T:
    """What the first process has for a value."""
    if not _together():
        return value
    said: list[T] = [value]
    dist.broadcast_object_list(said)
    return said[0]


def share(items: Tensor) -> Tensor:
    """This process's part of what all of them have: each item is with one process, none is added."""
    return items[rank() :: world()] if _together() else items


def mean_loss(total: Tensor, count: int) -> Tensor:
    """A sum over this process's targets, scaled so that the mean over processes is the mean over all targets.

    Averaging the means instead would weigh a target by how few others its process happens to have.
    """
    if not _together():
        return total / max(1, count)
    targets = torch.tensor(count, dtype=torch.int64, device=total.device)
    dist.all_reduce(targets)
    return total * world() / targets.clamp(min=1)


def sum_of(value: Tensor) -> Tensor:
    """Over all processes, without gradient."""
    value = value.detach().clone()
    if _together():
        dist.all_reduce(value)
    return value


class MeanOfTargets(Metric):
    """A mean as a sum and a count, in double precision: the same float for any number of processes."""

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
