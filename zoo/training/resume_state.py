"""The state from which a run goes on as if it had never stopped: random generators, metrics, and Lightning's counters.

Lightning alone does not resume in the middle of an epoch. It skips the validation of an epoch that was interrupted
after its last batch; it forgets the random generators, the metrics of an unfinished epoch and, at the end of an epoch,
the loader's position; and its count of the batch in which it saves depends on the hook that saves. A state is therefore
saved at one point alone, before a training batch and between two steps of the optimizer, and `settled` sets the
counters to that point.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.optim import Optimizer
from torchmetrics import Metric

from zoo.errors import CheckpointError
from zoo.tasks.base import Task
from zoo.validation import ValidationError, abbreviate, validate_like


def is_step_boundary(trainer: pl.Trainer) -> bool:
    """Returns whether this batch is the first of a step of the optimizer: no gradients have been accumulated."""
    return bool(trainer.fit_loop.epoch_loop.batch_progress.current.completed % trainer.accumulate_grad_batches == 0)


def rewind_progress(loops: Mapping[str, Any], accumulated: int) -> dict[str, int]:
    """Sets Lightning's counters to the point before a batch, as if that batch had not begun; returns that point."""
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


def _set(counts: MutableMapping[str, int], **values: int) -> None:
    counts.update({name: value for name, value in values.items() if name in counts})


def get_rng_state() -> dict[str, Any]:
    """Returns the states of all random number generators, as plain values and tensors."""
    name, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)
    numpy = {
        "keys": torch.tensor(np.asarray(keys, dtype=np.int64)),
        "place": int(place),
        "has_gauss": int(has_gauss),
        "gauss": float(gauss),
    }
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"torch": torch.get_rng_state(), "cuda": cuda, "python": random.getstate(), "numpy": {"name": name, **numpy}}


def set_rng_state(states: Mapping[str, Any]) -> None:
    """Restores what `generators` returned. States of GPUs are left out where their number has changed."""
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available() and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
    random.setstate(_to_python_state(states))
    np.random.set_state(_to_numpy_state(states))


_WORDS = 624
"""The words of the state of NumPy's Mersenne Twister."""


def _to_python_state(states: Mapping[str, Any]) -> tuple[Any, ...]:
    version, internal, gauss = states["python"]
    if not (gauss is None or type(gauss) is float):  # Python itself would notice when it draws the next number
        raise TypeError(f"{abbreviate(gauss)} is not a number that Python has drawn ahead")
    return version, tuple(internal), gauss


def _to_numpy_state(states: Mapping[str, Any]) -> tuple[Any, ...]:
    numpy = states["numpy"]
    keys, place = numpy["keys"], numpy["place"]
    if keys.shape != (_WORDS,) or (keys >> 32).any() or not 0 <= place <= _WORDS:  # NumPy would read beyond its end
        raise ValueError(f"NumPy's state is not {_WORDS} words of 32 bits, and a place among them")
    return numpy["name"], keys.numpy().astype(np.uint32), place, numpy["has_gauss"], numpy["gauss"]


@contextmanager
def translate_validation_errors(path: Any) -> Iterator[None]:
    """Turns a ValidationError into a CheckpointError that names the checkpoint."""
    try:
        yield
    except ValidationError as error:
        raise CheckpointError(
            f"{path} cannot be continued: {error}. Start a new run from its weights with init="
        ) from error


def check(content: Mapping[str, Any], trainer: pl.Trainer) -> None:
    """Checks that the states of optimizers, schedules and generators fit this run.

    Raises:
        ValidationError: They do not; the message says which.
    """
    module = trainer.lightning_module
    assert isinstance(module, Task)
    states, schedules = content["optimizer_states"], content["lr_schedulers"]
    if len(states) != len(trainer.optimizers) or len(schedules) != len(trainer.lr_scheduler_configs):
        raise ValidationError(f"it has the states of {len(states)} optimizers and {len(schedules)} schedules")
    has_all = "FSDP" not in type(trainer.strategy).__name__  # there a process has a part of each parameter
    for state, optimizer in zip(states, trainer.optimizers if has_all else (), strict=has_all):
        _check_optimizer(state, getattr(optimizer, "optimizer", optimizer), module.optimization.optimizer)
    for state, config in zip(schedules, trainer.lr_scheduler_configs, strict=True):
        validate_like(state, config.scheduler.state_dict(), "lr_schedulers.0")
    for states_of_process in content["exactly"]["generators"]:
        _check_generators(states_of_process)
    for state in content["exactly"]["epoch_metrics"]:
        PartialEpochMetrics.check(state, module)


def _check_optimizer(state: Mapping[str, Any], optimizer: Optimizer, new: Callable[..., Optimizer]) -> None:
    """Checks an optimizer's state: its entries have the names and shapes that such an optimizer gives them."""
    validate_like(state["param_groups"], optimizer.state_dict()["param_groups"], "optimizer_states.0.param_groups")
    parameters = dict(enumerate(p for group in optimizer.param_groups for p in group["params"]))
    known: dict[int, Mapping[str, Any]] = {}
    for number, values in state["state"].items():
        where = f"optimizer_states.0.state.{number}"
        if number not in parameters:
            raise ValidationError(f"{where} is of none of the {len(parameters)} parameters")
        parameter = parameters[number]
        model = known.setdefault(parameter.dim(), _simulate_step(new, parameter.dim()))
        if values.keys() != model.keys():
            raise ValidationError(
                f"{where} holds {', '.join(values) or 'nothing'}, not {', '.join(model) or 'nothing'}"
            )
        for name, value in values.items():
            if not isinstance(model[name], Tensor):
                validate_like(value, model[name], f"{where}.{name}")
                continue
            shape = parameter.shape if model[name].shape == (2,) * parameter.dim() else model[name].shape
            is_as_wide = isinstance(value, Tensor) and value.is_floating_point() and value.shape == shape
            if not is_as_wide:
                raise ValidationError(f"{where}.{name} is {abbreviate(value)}, not one of {tuple(shape)}")


def _simulate_step(new: Callable[..., Optimizer], dims: int) -> Mapping[str, Any]:
    """Returns the state that an optimizer of this kind keeps of a parameter with `dims` axes of length two."""
    parameter = torch.nn.Parameter(torch.zeros((2,) * dims))
    parameter.grad = torch.zeros_like(parameter)
    optimizer = new([parameter])
    optimizer.step(lambda: 0.0)
    return dict(optimizer.state[parameter])


def _check_generators(states: Mapping[str, Any]) -> None:
    """Checks the states of generators by loading them into new ones."""
    try:
        torch.Generator().set_state(states["torch"])
        random.Random().setstate(_to_python_state(states))
        np.random.RandomState().set_state(_to_numpy_state(states))
        for state in states["cuda"] if torch.cuda.is_available() else ():
            torch.Generator("cuda").set_state(state)
    except (TypeError, ValueError, RuntimeError, KeyError, OverflowError) as error:
        raise ValidationError(f"content.exactly.generators are not states of generators ({error})") from error


class PartialEpochMetrics:
    """The sums of an unfinished epoch, which `self.log(..., on_epoch=True)` and torchmetrics report at its end."""

    def __init__(self) -> None:
        self._pending: dict[str, dict[str, Any]] = {}

    @staticmethod
    def state(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Any]:
        if trainer.fit_loop.epoch_loop.batch_progress.current.completed == 0:
            return {"sums": {}, "metrics": {}}
        sums = {
            key: {"value": result.value.cpu(), "count": _to_cpu(getattr(result, "cumulated_batch_size", None))}
            for key, result in trainer.fit_loop.epoch_loop._results.items()
            if result.is_tensor and result.meta.on_epoch and not result.has_reset
        }
        metrics = {
            name: {"updates": metric._update_count, "state": {k: _to_cpu(v) for k, v in metric.metric_state.items()}}
            for name, metric in _iter_metrics(module)
            if metric._update_count
        }
        return {"sums": sums, "metrics": metrics}

    def load(self, state: Mapping[str, Any], module: pl.LightningModule) -> None:
        """Restores a state before the first batch; a sum is added when its metric is first logged again."""
        self._pending = dict(state["sums"])
        for name, metric in _iter_metrics(module):
            if name in state["metrics"]:
                metric._update_count = state["metrics"][name]["updates"]
                for key, value in state["metrics"][name]["state"].items():
                    setattr(metric, key, _to_device(value, metric.device))

    @staticmethod
    def check(state: Mapping[str, Any], module: pl.LightningModule) -> None:
        """Checks that sums and states of metrics fit the module.

        Raises:
            ValidationError: They do not; the message says which.
        """
        for key, sums in state["sums"].items():
            if sums["value"].dim() or (sums["count"] is not None and sums["count"].dim()):
                raise ValidationError(f"the sum {key} is {abbreviate(sums['value'])}, not a number")
        for name, metric in _iter_metrics(module):
            state_of_metric = state["metrics"].get(name, {"state": metric.metric_state})["state"]
            if state_of_metric.keys() != metric.metric_state.keys():
                raise ValidationError(f"the metric {name} holds {', '.join(state_of_metric) or 'nothing'}")
            for key, value in metric.metric_state.items():
                parts = [state_of_metric[key]] if isinstance(value, Tensor) else state_of_metric[key]
                same = isinstance(state_of_metric[key], Tensor) == isinstance(value, Tensor)
                if not same or (isinstance(value, Tensor) and _form(parts[0]) != _form(value)):
                    raise ValidationError(f"the metric {name} has {abbreviate(state_of_metric[key])} for {key}")

    def add(self, trainer: pl.Trainer) -> None:
        """Adds the restored sums of metrics that this batch has logged. To be called after each batch."""
        results = trainer.fit_loop.epoch_loop._results
        for key in [key for key in self._pending if key in results]:
            saved, result = self._pending.pop(key), results[key]
            before = _to_device(saved["value"], result.value.device)
            if result.meta.is_max_reduction or result.meta.is_min_reduction:
                result.value = result.meta.reduce_fx(torch.stack([before, result.value]))
            else:
                result.value = before + result.value
            if saved["count"] is not None:
                result.cumulated_batch_size = (
                    _to_device(saved["count"], result.value.device) + result.cumulated_batch_size
                )
            result._computed = None


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype


def _iter_metrics(module: pl.LightningModule) -> Iterator[tuple[str, Metric]]:
    return ((name, metric) for name, metric in module.named_modules() if isinstance(metric, Metric))


def _to_cpu(value: Any) -> Any:
    return None if value is None else _to_device(value, "cpu")


def _to_device(value: Any, device: Any) -> Any:
    return [tensor.to(device) for tensor in value] if isinstance(value, list) else value.to(device)
