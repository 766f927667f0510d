"""Several processes for one run: who starts them, what they agree on, and what happens when one dies.

`run.train` fixes the run directory and writes config.yaml; then the ranks are started from that file by torchrun's own
launcher, as `python -m zoo.training.launch config.yaml`. A process that torchrun or SLURM has started from outside is a
rank already: it joins the others, and the first of them chooses the run directory.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytorch_lightning as pl

from zoo.errors import ConfigError, InterruptedRunError, TrainingError, ZooError
from zoo.sweeps import processes
from zoo.training import signals
from zoo.training.run_directory import how_to_continue

T = TypeVar("T")
_OURS = "ZOO_LAUNCHED"
"""Where ranks that we started leave their last words: a directory."""
_KINDS = {kind.__name__: kind for kind in ZooError.__subclasses__()}
_PATIENCE = 120
"""Seconds that ranks have for saving when they are stopped, and for leaving when one of them has died."""


def wanted(config: Mapping[str, Any]) -> bool:
    """Whether this process is to start ranks: more than one is asked for, and it is none itself."""
    trainer = config["trainer"]
    if is_rank() or devices(trainer) * nodes(trainer) == 1:
        return False
    check(config)
    if nodes(trainer) > 1:
        raise ConfigError(
            f"trainer.num_nodes={nodes(trainer)}: start the same command on every node, by srun (SLURM) or by "
            f"torchrun --nnodes={nodes(trainer)} --nproc-per-node={devices(trainer)} --rdzv-backend=c10d "
            "--rdzv-endpoint=FIRST_NODE:29500 train.py ...; see docs/scaling.md"
        )
    return True


def is_rank() -> bool:
    """Started by us, by torchrun, or by srun with several tasks."""
    return ("RANK" in os.environ and "WORLD_SIZE" in os.environ) or _in_slurm_step()


def by_us() -> bool:
    """Whether it is a rank that this program has started."""
    return _OURS in os.environ


def is_restart() -> bool:
    """Whether it is a rank in the place of one that has died."""
    return bool(int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))


def devices(trainer: Mapping[str, Any]) -> int:
    """Processes on this node."""
    given = trainer.get("devices", 1)
    if isinstance(given, list):
        return len(given)
    if isinstance(given, str) and "," in given:
        return len([each for each in given.split(",") if each.strip()])
    if given in ("auto", -1, "-1"):
        import torch

        on_gpu = trainer.get("accelerator") in ("gpu", "cuda", "auto")
        return max(1, torch.cuda.device_count()) if on_gpu else 1
    if type(given) is not int or given < 1:
        raise ConfigError(f"trainer.devices={given!r}: write a whole number from 1, a list of GPUs, or auto")
    return given


def nodes(trainer: Mapping[str, Any]) -> int:
    return int(trainer.get("num_nodes", 1))


def check(config: Mapping[str, Any]) -> None:
    """What cannot be done by several processes."""
    if config["optimisation"].get("unfreeze"):
        raise ConfigError(
            "optimisation.unfreeze: with several processes gradients are shared only for the parameters that change "
            "from the start; train in two runs, the second with init=, or with trainer.devices=1"
        )


def start(config: Mapping[str, Any], run_dir: Path) -> dict[str, Any]:
    """Starts the ranks of this node from the run's config.yaml, waits, and returns what they left in metrics.json."""
    trainer = config["trainer"]
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in [each for each in logging.root.manager.loggerDict if each.startswith("torch.distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what went wrong is said below, once
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)}
    with tempfile.TemporaryDirectory(prefix="zoo-") as words:
        before = {name: os.environ.get(name) for name in (_OURS, "PYTHONPATH", "TORCHELASTIC_SIGNALS_TO_HANDLE")}
        own = {_OURS: words, "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGQUIT"}  # the others are handled here
        os.environ.update(own, PYTHONPATH=processes.environment().get("PYTHONPATH", ""))
        request = signals.Request()

        def stop(number: int, _: Any) -> None:
            is_first = request.by is None
            if request.insists(number) or is_first:
                raise SignalException(f"signal {number}", sigval=signal.Signals(number))

        for each in (*signals.STOPPING, signal.SIGHUP):
            signal.signal(each, stop)
        settings = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=devices(trainer),
            run_id=run_dir.name or "zoo",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="127.0.0.1",
            max_restarts=trainer.get("max_restarts", 0),
            monitor_interval=0.2,
            logs_specs=DefaultLogsSpecs(log_dir=words),
            shutdown_timeout=_PATIENCE,
        )
        entry, *arguments = processes.command(str(run_dir / "config.yaml"), module="zoo.training.launch")
        try:
            elastic_launch(settings, entry)(*arguments)
        except ChildFailedError as error:
            raise _explained(Path(words), error, run_dir) from None
        except SignalException as error:
            raise _last_words(Path(words)) or InterruptedRunError(
                f"stopped by {signal.Signals(error.sigval).name}{how_to_continue(run_dir)}"
            ) from None
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
    found: dict[str, Any] = json.loads((run_dir / "metrics.json").read_text(encoding="utf-8"))
    return found


def join(config: dict[str, Any]) -> dict[str, Any]:
    """In a rank: meets the others, and enters what is decided from outside into the configuration."""
    if not is_rank():
        return config
    _take_slurm()
    import torch
    from torch import distributed as dist

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
    check(joined)
    last = Path(str(config["run_dir"])) / "checkpoints" / "last.ckpt"
    if is_restart() and config["run_dir"] and last.exists():
        joined |= {"resume": str(last), "init": None}
    return joined


def agreed_run_dir(config: Mapping[str, Any], choose: Callable[[], Path]) -> Path:
    """The first rank's choice, or its error; that of the process which started us, if one did."""
    if not is_rank():
        return choose()
    if by_us() or (is_restart() and config["run_dir"]):
        return Path(config["run_dir"])
    return first(choose)


def first(work: Callable[[], T]) -> T:
    """Done by the first rank alone; its result, or its error, is everyone's."""
    from zoo.training import ranks

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
        raise _KINDS.get(kind, ZooError)(value)
    done: T = value
    return done


def plugins() -> list[Any]:
    """Lightning finds its rank in the environment, whatever else it would believe to be in (SLURM's, say)."""
    if not is_rank():
        return []
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    return [TorchElasticEnvironment()]


def for_evaluation(trainer: pl.Trainer, config: Mapping[str, Any], module: T, again: Callable[[], T]) -> tuple[Any, T]:
    """Trainer and module that can take whole weights: after FSDP each process is left with its part of them."""
    if config["trainer"].get("strategy") != "fsdp":
        return trainer, module
    from zoo.training.callbacks import Interruption

    evaluating = pl.Trainer(
        **{**trainer_options(config), "strategy": "ddp", "max_time": None},
        plugins=plugins(),
        callbacks=[each for each in trainer.callbacks if isinstance(each, Interruption)],  # type: ignore[attr-defined]
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    return evaluating, again()


def trainer_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are Lightning's."""
    return {name: value for name, value in config["trainer"].items() if name != "max_restarts"}


class Unused(pl.Callback):
    """With several processes, refuses parameters that the loss does not depend on, by name, before the first step.

    DDP waits for the gradient of every parameter; it would say so one step later, in numbers.
    """

    def __init__(self) -> None:
        self._checked = False

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._checked or trainer.world_size == 1:
            return
        self._checked = True
        names = [n for n, p in pl_module.named_parameters() if p.requires_grad and p.grad is None]
        if names:
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise ConfigError(
                f"the loss does not depend on {shown}; with several processes every parameter must be used: "
                f"take it out of the model, or freeze it: optimisation.freeze=[{names[0]}]"
            )


def main(path: str) -> int:
    """One rank of the run whose config.yaml this is."""
    import yaml

    from zoo.training import run

    _end_with_parent()
    try:
        run.train(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
    except ZooError as error:
        said = json.dumps({"kind": type(error).__name__, "message": str(error)})
        (Path(os.environ[_OURS]) / f"{os.environ['RANK']}.json").write_text(said, encoding="utf-8")
        return 130 if isinstance(error, InterruptedRunError) else 2
    except Exception:
        # those whose partner has died fail too: which of these is the cause is for the launcher to say
        said = traceback.format_exc()
        (Path(os.environ[_OURS]) / f"{os.environ['RANK']}.traceback").write_text(said, encoding="utf-8")
        return 1
    return 0


def _last_words(folder: Path) -> ZooError | None:
    for path in sorted(folder.glob("*.json"), key=lambda each: int(each.stem)):
        said = json.loads(path.read_text(encoding="utf-8"))
        return _KINDS.get(said["kind"], ZooError)(said["message"])
    return None


def _explained(folder: Path, failed: Any, run_dir: Path) -> ZooError:
    said = _last_words(folder)
    if said is not None:
        return said
    # one that was killed took the others along, which then met an error of their own
    by_others = {n for n, each in failed.failures.items() if each.exitcode >= 0 or each.exitcode == -signal.SIGTERM}
    number, failure = min(failed.failures.items(), key=lambda item: (item[0] in by_others, item[0]))
    code = failure.exitcode
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    traces = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.traceback"))]
    if code > 0 and traces:  # a lost connection is what the others met
        print(min(traces, key=lambda each: "Connection" in each.splitlines()[-1]), file=sys.stderr)
    return TrainingError(f"process {number} of this run {how}, and the run with it{how_to_continue(run_dir)}")


def _part() -> None:
    from torch import distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def _in_slurm_step() -> bool:
    """A task of several that srun started; a batch script has most of these variables too, but no step."""
    return "SLURM_STEP_ID" in os.environ and int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def _take_slurm() -> None:
    """SLURM's variables under torchrun's names."""
    if "RANK" in os.environ or not _in_slurm_step():
        return
    at_node = os.environ.get("SLURM_STEP_TASKS_PER_NODE", os.environ.get("SLURM_NTASKS_PER_NODE", "1"))
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment

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


def _end_with_parent() -> None:
    """A launcher that is killed takes its ranks along; only Linux can be asked for that."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
