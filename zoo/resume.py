"""Continuing a run exactly: which checkpoint, what of the past it must hold, and how files are put back to it.

Lightning alone does not resume in the middle of an epoch. It skips the validation of an epoch that was interrupted
after its last batch, forgets the loader's place at the end of an epoch, the random generators and the metrics of a
begun epoch, and counts the batch in which it saves differently by the hook that saves. So a state is saved in one place
alone, before a training batch and between two steps of the optimiser, and `settled` writes the counters of that place.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torchmetrics import Metric

from zoo import checkpoint, run_directory
from zoo.errors import CheckpointError
from zoo.run_directory import CONFIG, LAST, RESULT


def locate(config: Mapping[str, Any]) -> tuple[str | None, str]:
    """For `resume=auto`: the checkpoint to continue, if any, and a sentence about it."""
    if config["run_dir"] is not None:
        last = Path(config["run_dir"]).absolute() / LAST
        if last.exists():
            return str(last), f"continuing {last}"
        return None, f"nothing to continue in {config['run_dir']}: a new run"
    names = config["names"]
    parent = Path(config["paths"]["runs"]).absolute() / f"{names['model']}-{names['data']}"
    for run_dir in sorted(parent.glob("*"), key=_age):
        if (run_dir / RESULT).exists() or not (run_dir / LAST).exists() or run_directory.is_held(run_dir):
            continue
        if run_directory.is_same(config, run_dir / CONFIG):
            return str(run_dir / LAST), f"continuing {run_dir / LAST}"
    return None, f"no unfinished run of this configuration under {parent}: a new run"


def adopt(source: Path, run_dir: Path) -> None:
    """What belongs to a checkpoint, for a run that goes on in another directory."""
    origin = source.absolute().parent.parent
    for name in ("metrics.csv", "checkpoints/best.ckpt", "checkpoints/best.previous.ckpt"):
        if (origin / name).exists() and not (run_dir / name).exists():
            (run_dir / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin / name, run_dir / name)


def steps(content: Mapping[str, Any]) -> int:
    """The steps that a checkpoint's run had logged: rows of metrics.csv from this step on are of what was lost."""
    logged = content["loops"]["fit_loop"]["epoch_loop.state_dict"]["_batches_that_stepped"]
    assert isinstance(logged, int)
    return logged


def settle_files(checkpoints: Path, best_step: int | None) -> None:
    """The best.ckpt that `last.ckpt` speaks of, after a kill between the writing of the two.

    Args:
        checkpoints: The folder of both.
        best_step: The step of the best weights when `last.ckpt` was written; None if there were none.
    """
    for partial in checkpoints.glob(".*.ckpt.*"):
        partial.unlink(missing_ok=True)
    best, previous = checkpoints / "best.ckpt", checkpoints / "best.previous.ckpt"
    if _step_of(best) != best_step:
        if best_step is not None and _step_of(previous) == best_step:
            os.replace(previous, best)
        elif best_step is None:
            best.unlink(missing_ok=True)  # of steps that were lost
        else:
            raise CheckpointError(
                f"{best} is not the one that last.ckpt beside it speaks of (of step {best_step}). "
                "Put that one there, or start a new run from the weights with init="
            )
    previous.unlink(missing_ok=True)


def best_step(content: Mapping[str, Any]) -> int | None:
    """The step of the best weights of which a last.ckpt knows."""
    found = content["callbacks"]["Keeper"]["best_step"]
    assert found is None or isinstance(found, int)
    return found


def at_boundary(trainer: pl.Trainer) -> bool:
    """Whether no gradients are being accumulated before this batch."""
    return bool(trainer.fit_loop.epoch_loop.batch_progress.current.completed % trainer.accumulate_grad_batches == 0)


def agreed(trainer: pl.Trainer, wish: bool) -> bool:
    """Whether any process wishes it: a checkpoint is an affair of all of them."""
    return wish if trainer.world_size == 1 else bool(trainer.strategy.reduce_boolean_decision(wish, all=False))


def settled(loops: Mapping[str, Any], accumulated: int) -> dict[str, int]:
    """Sets Lightning's counters to the place before a batch, which is returned: what was begun there has not begun."""
    fit = loops["fit_loop"]
    epochs, batches = fit["epoch_progress"], fit["epoch_loop.batch_progress"]
    optimizer = fit["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
    done, epoch = batches["current"]["completed"], epochs["current"]["processed"]
    is_begun = epochs["current"]["ready"] > epoch
    undone = done % accumulated if is_begun else 0
    done = done - undone if is_begun else 0
    for name, counts in epochs.items():
        finished = counts["processed"] if name == "total" else epoch
        _set(counts, ready=finished + (done > 0), started=finished + (done > 0), processed=finished, completed=finished)
    total = batches["total"]["completed"] - undone
    _set(batches["total"], ready=total, started=total, processed=total, completed=total)
    _set(batches["current"], ready=done, started=done, processed=done, completed=done)
    batches["is_last_batch"] = False
    for kind in ("step", "zero_grad"):
        for counts in optimizer[kind].values():
            _set(counts, **dict.fromkeys(counts, counts["completed"]))
    place = {"epoch": epoch, "position": done}
    for loader in fit["state_dict"].get("combined_loader", ()):
        loader.update(place)
    return place


def generators() -> dict[str, Any]:
    """The states of all random generators, in plain types."""
    name, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)
    numpy = {
        "keys": torch.tensor(np.asarray(keys, dtype=np.int64)),
        "place": int(place),
        "has_gauss": int(has_gauss),
        "gauss": float(gauss),
    }
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"torch": torch.get_rng_state(), "cuda": cuda, "python": random.getstate(), "numpy": {"name": name, **numpy}}


def set_generators(states: Mapping[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available() and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    numpy = states["numpy"]
    keys = numpy["keys"].numpy().astype(np.uint32)
    np.random.set_state((numpy["name"], keys, numpy["place"], numpy["has_gauss"], numpy["gauss"]))


def of_all_processes(trainer: pl.Trainer, states: Any) -> list[Any]:
    """The same thing of every process, in the order of their ranks."""
    if trainer.world_size == 1:
        return [states]
    found: list[Any] = [None] * trainer.world_size
    torch.distributed.all_gather_object(found, states)
    return found


class EpochMetrics:
    """What a begun epoch has logged for its end: sums that `self.log(..., on_epoch=True)` and torchmetrics keep."""

    def __init__(self) -> None:
        self._pending: dict[str, dict[str, Any]] = {}

    @staticmethod
    def state(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Any]:
        if trainer.fit_loop.epoch_loop.batch_progress.current.completed == 0:
            return {"sums": {}, "metrics": {}}
        sums = {
            key: {"value": each.value.cpu(), "count": _of_cpu(getattr(each, "cumulated_batch_size", None))}
            for key, each in trainer.fit_loop.epoch_loop._results.items()
            if each.is_tensor and each.meta.on_epoch and not each.has_reset
        }
        metrics = {
            name: {"updates": metric._update_count, "state": {k: _of_cpu(v) for k, v in metric.metric_state.items()}}
            for name, metric in _metrics(module)
            if metric._update_count
        }
        return {"sums": sums, "metrics": metrics}

    def load(self, state: Mapping[str, Any], module: pl.LightningModule) -> None:
        """To be called before the first batch; sums are added when their metric is first logged again."""
        self._pending = dict(state["sums"])
        for name, metric in _metrics(module):
            if name in state["metrics"]:
                metric._update_count = state["metrics"][name]["updates"]
                for key, value in state["metrics"][name]["state"].items():
                    setattr(metric, key, _moved(value, metric.device))

    def add(self, trainer: pl.Trainer) -> None:
        """To be called after each batch."""
        results = trainer.fit_loop.epoch_loop._results
        for key in [key for key in self._pending if key in results]:
            saved, each = self._pending.pop(key), results[key]
            before = _moved(saved["value"], each.value.device)
            if each.meta.is_max_reduction or each.meta.is_min_reduction:
                each.value = each.meta.reduce_fx(torch.stack([before, each.value]))
            else:
                each.value = before + each.value
            if saved["count"] is not None:
                each.cumulated_batch_size = _moved(saved["count"], each.value.device) + each.cumulated_batch_size
            each._computed = None


def _metrics(module: pl.LightningModule) -> Iterator[tuple[str, Metric]]:
    return ((name, each) for name, each in module.named_modules() if isinstance(each, Metric))


def _of_cpu(value: Any) -> Any:
    return None if value is None else _moved(value, "cpu")


def _moved(value: Any, device: Any) -> Any:
    return [each.to(device) for each in value] if isinstance(value, list) else value.to(device)


def _set(counts: MutableMapping[str, int], **values: int) -> None:
    counts.update({name: value for name, value in values.items() if name in counts})


def _age(run_dir: Path) -> float:
    with suppress(OSError):
        return -(run_dir / LAST).stat().st_mtime
    return 0.0


def _step_of(path: Path) -> int | None:
    if not path.exists():
        return None
    step = checkpoint.read(path).get("global_step")
    return step if isinstance(step, int) else None
