"""Communicates between the processes of a run. A process on its own is rank 0 of 1.

Such a process is started by this program (`zoo.training.launch`), by torchrun or by SLURM. SLURM has its own names for
the environment variables that torchrun sets.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torchmetrics import Metric

from zoo.errors import ZooError, make_error

T = TypeVar("T")
LAUNCHED = "ZOO_LAUNCHED"
"""The environment variable of processes that this program starts: the folder in which they leave their errors."""


def rank() -> int:
    """Returns the number of this process, from 0."""
    return dist.get_rank() if _is_initialized() else 0


def world_size() -> int:
    """Returns the number of processes."""
    return dist.get_world_size() if _is_initialized() else 1


def is_rank_zero() -> bool:
    """Returns whether this is the process that writes files and prints."""
    return rank() == 0


def barrier() -> None:
    """Waits until all processes have called this."""
    if _is_initialized():
        dist.barrier()


def all_reduce_any(flag: bool) -> bool:
    """Returns whether the flag is true in any process; all get the same answer."""
    if not _is_initialized():
        return flag
    count = torch.tensor(int(flag))
    dist.all_reduce(count, dist.ReduceOp.MAX)
    return bool(count)


def all_reduce_sum(value: Tensor) -> Tensor:
    """Returns the sum over all processes, without gradient."""
    value = value.detach().clone()
    if _is_initialized():
        dist.all_reduce(value)
    return value


def broadcast_object(value: T) -> T:
    """Returns the value that the first process passes, in every process."""
    if not _is_initialized():
        return value
    values: list[T] = [value]
    dist.broadcast_object_list(values)
    return values[0]


def all_gather_object(value: T) -> list[T]:
    """Returns the values that the processes pass, in the order of their numbers, in every process."""
    if not _is_initialized():
        return [value]
    values: list[T] = [value] * world_size()
    dist.all_gather_object(values, value)
    return values


def shard(values: Tensor) -> Tensor:
    """Returns this process's part of a tensor that all of them have: each row goes to one process; none is padded."""
    return values[rank() :: world_size()] if _is_initialized() else values


def mean_loss(total: Tensor, count: int) -> Tensor:
    """Scales a sum over this process's targets so that the mean over processes is the mean over all targets.

    A mean of the processes' means would give more weight to the targets of a process that has few.
    """
    if not _is_initialized():
        return total / max(1, count)
    targets = torch.tensor(count, dtype=torch.int64, device=total.device)
    dist.all_reduce(targets)
    return total * world_size() / targets.clamp(min=1)


class GlobalMean(Metric):
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


def run_on_rank_zero(work: Callable[[], T]) -> T:
    """Runs `work` in the first process alone; its result is returned, or its error raised, in every process."""
    if world_size() == 1:
        return work()
    outcome: tuple[str, Any] = ("", None)
    if is_rank_zero():
        try:
            outcome = ("", work())
        except ZooError as error:
            outcome = (type(error).__name__, str(error))
        except OSError as error:
            outcome = ("OSError", (error.errno, error.strerror, error.filename))
    kind, value = broadcast_object(outcome)
    if kind == "OSError":
        raise OSError(*value)
    if kind:
        raise make_error(kind, value)
    result: T = value
    return result


def is_worker() -> bool:
    """Returns whether this process is one of several, started by this program, torchrun, or srun with several tasks."""
    return ("RANK" in os.environ and "WORLD_SIZE" in os.environ) or _is_slurm_task()


def is_launched() -> bool:
    """Returns whether this program has started the process as one of several."""
    return LAUNCHED in os.environ


def is_restart() -> bool:
    """Returns whether the process replaces one that has died."""
    return bool(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))


def init_process_group(*, use_gpu: bool) -> None:
    """Connects this process with the others, until it ends."""
    _set_env_from_slurm()
    if dist.is_initialized():
        return
    if use_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("cpu:gloo,cuda:nccl" if use_gpu else "gloo")
    atexit.register(_destroy_process_group)


def environment_plugins() -> list[Any]:
    """Returns plugins by which Lightning reads the rank from torchrun's variables, also under SLURM."""
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    return [TorchElasticEnvironment()] if is_worker() else []


def _is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def _destroy_process_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _is_slurm_task() -> bool:
    """Returns whether srun started the process as one of several tasks.

    A batch script has these variables too, but no step.
    """
    return "SLURM_STEP_ID" in os.environ and int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def _set_env_from_slurm() -> None:
    """Sets torchrun's variables from SLURM's."""
    if "RANK" in os.environ or not _is_slurm_task():
        return
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment

    tasks = os.environ.get("SLURM_STEP_TASKS_PER_NODE", os.environ.get("SLURM_NTASKS_PER_NODE", "1"))
    names = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_NODELIST", "127.0.0.1")
    os.environ.update(
        RANK=os.environ["SLURM_PROCID"],
        LOCAL_RANK=os.environ["SLURM_LOCALID"],
        WORLD_SIZE=os.environ["SLURM_STEP_NUM_TASKS"],
        LOCAL_WORLD_SIZE=tasks.split("(")[0].split(",")[0],
        GROUP_RANK=os.environ.get("SLURM_NODEID", "0"),
    )
    os.environ.setdefault("MASTER_ADDR", SLURMEnvironment.resolve_root_node_address(names))
    os.environ.setdefault("MASTER_PORT", str(15000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 20000))
