"""A process that is one of several of a run: it finds the others, and agrees with them on the run's directory.

Such a process, called a rank, is started by this program (`zoo.training.launch`), by torchrun or by SLURM. SLURM has
its own names for the environment variables that torchrun sets.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from torch import distributed as dist

from zoo.errors import ConfigError, ZooError
from zoo.training import ranks, worker_errors

T = TypeVar("T")


def is_rank() -> bool:
    """Whether this process is one of several, started by this program, by torchrun, or by srun with several tasks."""
    return ("RANK" in os.environ and "WORLD_SIZE" in os.environ) or _in_slurm_step()


def by_us() -> bool:
    """Whether this program has started the process."""
    return worker_errors.FOLDER in os.environ


def is_restart() -> bool:
    """Whether the process replaces one that has died."""
    return bool(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))


def join(config: dict[str, Any]) -> dict[str, Any]:
    """Connects a rank with the others, and enters their number into the configuration."""
    if not is_rank():
        return config
    _take_slurm()
    if not dist.is_initialized():
        uses_gpu = config["trainer"]["accelerator"] in ("gpu", "cuda", "auto") and torch.cuda.is_available()
        if uses_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        dist.init_process_group("cpu:gloo,cuda:nccl" if uses_gpu else "gloo")
        atexit.register(_part)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    trainer = {**config["trainer"], "devices": here, "num_nodes": int(os.environ["WORLD_SIZE"]) // here}
    if trainer.get("strategy", "auto") == "auto":
        trainer["strategy"] = "ddp"
    joined = {**config, "trainer": trainer}
    check_shared(joined)
    last = Path(str(config["run_dir"])) / "checkpoints" / "last.ckpt"
    if is_restart() and config["run_dir"] and last.exists():
        joined |= {"resume": str(last), "init": None}
    return joined


def check_shared(config: Mapping[str, Any]) -> None:
    """Refuses what several processes cannot do."""
    if config["optimisation"].get("unfreeze"):
        raise ConfigError(
            "optimisation.unfreeze: with several processes gradients are shared only for the parameters that change "
            "from the start; train in two runs, the second with init=, or with trainer.devices=1"
        )


def agreed_run_dir(config: Mapping[str, Any], choose: Callable[[], Path]) -> Path:
    """The directory that the first rank chooses, or the process that started the ranks; its error is raised in all."""
    if not is_rank():
        return choose()
    if by_us() or (is_restart() and config["run_dir"]):
        return Path(config["run_dir"])
    return first(choose)


def first(work: Callable[[], T]) -> T:
    """Runs `work` in the first rank alone; its result is returned, or its error raised, in every rank."""
    if ranks.world() == 1:
        return work()
    outcome: tuple[str, Any] = ("", None)
    if ranks.is_first():
        try:
            outcome = ("", work())
        except ZooError as error:
            outcome = (type(error).__name__, str(error))
        except OSError as error:
            outcome = ("OSError", (error.errno, error.strerror, error.filename))
    kind, value = ranks.first_says(outcome)
    if kind == "OSError":
        raise OSError(*value)
    if kind:
        raise worker_errors.error_of_kind(kind, value)
    done: T = value
    return done


def plugins() -> list[Any]:
    """Lightning plugins that read the rank from torchrun's variables, also under SLURM."""
    if not is_rank():
        return []
    return [TorchElasticEnvironment()]


def _part() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _in_slurm_step() -> bool:
    """Whether srun started the process as one of several tasks. A batch script has these variables too, but no step."""
    return "SLURM_STEP_ID" in os.environ and int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def _take_slurm() -> None:
    """Sets torchrun's variables from SLURM's."""
    if "RANK" in os.environ or not _in_slurm_step():
        return
    at_node = os.environ.get("SLURM_STEP_TASKS_PER_NODE", os.environ.get("SLURM_NTASKS_PER_NODE", "1"))
    names = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_NODELIST", "127.0.0.1")
    os.environ.update(
        RANK=os.environ["SLURM_PROCID"],
        LOCAL_RANK=os.environ["SLURM_LOCALID"],
        WORLD_SIZE=os.environ["SLURM_STEP_NUM_TASKS"],
        LOCAL_WORLD_SIZE=at_node.split("(")[0].split(",")[0],
        GROUP_RANK=os.environ.get("SLURM_NODEID", "0"),
    )
    os.environ.setdefault("MASTER_ADDR", SLURMEnvironment.resolve_root_node_address(names))
    os.environ.setdefault("MASTER_PORT", str(15000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 20000))
