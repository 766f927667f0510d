"""Starting the processes of one run.

`run.train` chooses the run directory and writes config.yaml; torchrun's launcher then starts workers from that file,
each as `python -m zoo.training.worker config.yaml`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from zoo import distributed, processes
from zoo.errors import ConfigError, InterruptedRunError, ZooError, count_noun, warn
from zoo.training.run_config import CONFIG, LAST, RunConfig
from zoo.training.run_dir import RunDir
from zoo.training.run_errors import make_resume_hint, read_error, to_training_error

_MOST_PER_CORE = 4
"""Processes for each core of the processor, for trials; each takes some hundred megabytes."""
_PATIENCE = 120
"""Seconds that ranks have to save when they are stopped, and to end when one of them has died."""


def connect(config: RunConfig) -> RunConfig:
    """Connects a process that is one of several with the others, and enters their number into the configuration."""
    if not distributed.is_worker():
        return config
    use_gpu = config.trainer["accelerator"] in ("gpu", "cuda", "auto") and torch.cuda.is_available()
    distributed.init_process_group(use_gpu=use_gpu)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    trainer = {**config.trainer, "devices": here, "num_nodes": int(os.environ["WORLD_SIZE"]) // here}
    if trainer.get("strategy", "auto") == "auto":
        trainer["strategy"] = "ddp"
    config = config.replace(trainer=trainer)
    check_shared(config)
    if distributed.is_restart() and config.run_dir and (last := Path(config.run_dir) / LAST).exists():
        return config.replace(resume=str(last), init=None)
    return config


def check_shared(config: RunConfig) -> None:
    """Refuses what several processes cannot do."""
    if config.tree["optimization"].get("unfreeze"):
        raise ConfigError(
            "optimization.unfreeze: with several processes gradients are shared only for the parameters that change "
            "from the start; train in two runs, the second with init=, or with trainer.devices=1"
        )


def should_launch(config: RunConfig) -> bool:
    """Returns whether this process has to start workers: it is none, and the options ask for several."""
    devices, nodes = count_devices(config.trainer), int(config.trainer.get("num_nodes", 1))
    if distributed.is_worker() or devices * nodes == 1:
        return False
    check_shared(config)
    _check_cores(config.trainer)
    if nodes > 1:
        raise ConfigError(
            f"trainer.num_nodes={nodes}: start the same command on every node, by srun (SLURM) or by "
            f"torchrun --nnodes={nodes} --nproc-per-node={devices} --rdzv-backend=c10d "
            "--rdzv-endpoint=FIRST_NODE:29500 train.py ...; see docs/scaling.md"
        )
    return True


def run_workers(config: RunConfig, run_dir: RunDir) -> dict[str, Any]:
    """Starts workers, each of which trains with this configuration; waits for them, and returns their metrics.json."""
    run_dir.write_config(config)
    run_dir.share_lock()
    try:
        return _launch_workers(config, run_dir.path)
    except ZooError:
        if not any(path.name != CONFIG for path in run_dir.path.iterdir()):  # the run did not begin
            (run_dir.path / CONFIG).unlink()
        raise


def _check_cores(trainer: Mapping[str, Any]) -> None:
    """Refuses or warns of more processes than the processors of this machine can serve."""
    cores, count = len(os.sched_getaffinity(0)), count_devices(trainer)
    if trainer.get("accelerator") != "cpu" or count <= cores:
        return
    message = f"trainer.devices={count}: this machine has {count_noun(cores, 'core')} for {count} processes"
    if count > _MOST_PER_CORE * cores:
        raise ConfigError(f"{message}, and {_MOST_PER_CORE * cores} are the most; they would only wait for each other")
    warn(f"{message}: more than {cores} make training slower")


def count_devices(trainer: Mapping[str, Any]) -> int:
    """Counts the processes on this node."""
    devices = trainer.get("devices", 1)
    if isinstance(devices, list):
        return len(devices)
    if isinstance(devices, str) and "," in devices:
        return len([device for device in devices.split(",") if device.strip()])
    if devices in ("auto", -1, "-1"):
        on_gpu = trainer.get("accelerator") in ("gpu", "cuda", "auto")
        return max(1, torch.cuda.device_count()) if on_gpu else 1
    if type(devices) is not int or devices < 1:
        raise ConfigError(f"trainer.devices={devices!r}: write a whole number from 1, a list of GPUs, or auto")
    return devices


def _launch_workers(config: RunConfig, run_dir: Path) -> dict[str, Any]:
    trainer = config.trainer
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in [name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # the error is reported once, below
    request = processes.StopRequest()

    def stop(number: int, _: Any) -> None:
        is_first = request.received is None
        if request.record(number) or is_first:
            raise SignalException(f"signal {number}", sigval=signal.Signals(number))

    entry, *arguments = processes.make_command(str(run_dir / "config.yaml"), str(os.getpid()), module=processes.WORKER)
    handled = (*processes.STOPPING, signal.SIGHUP, signal.SIGQUIT)  # torch handles the last one, while it works
    with tempfile.TemporaryDirectory(prefix="zoo-") as logs, processes.handle_signals(stop, handled):
        before = dict(os.environ)
        os.environ.update(processes.make_environment())
        os.environ.update({distributed.LAUNCHED: logs, "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGQUIT"})
        settings = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=count_devices(trainer),
            run_id=run_dir.name or "zoo",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="127.0.0.1",
            max_restarts=trainer.get("max_restarts", 0),
            monitor_interval=0.2,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            shutdown_timeout=_PATIENCE,
        )
        try:
            elastic_launch(settings, entry)(*arguments)
        except ChildFailedError as error:
            raise to_training_error(Path(logs), error, run_dir) from None
        except SignalException as error:
            raise read_error(Path(logs)) or InterruptedRunError(
                f"stopped by {signal.Signals(error.sigval).name}{make_resume_hint(run_dir)}"
            ) from None
        finally:
            for name in set(os.environ) - set(before):
                del os.environ[name]
            os.environ.update(before)
    metrics: dict[str, Any] = json.loads((run_dir / "metrics.json").read_text(encoding="utf-8"))
    return metrics
