"""The metrics of an unfinished epoch, for a run that goes on in the middle of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torchmetrics import Metric

from zoo.validation import MalformedError, short


class EpochMetrics:
    """The sums of an unfinished epoch, which `self.log(..., on_epoch=True)` and torchmetrics report at its end."""

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
        """Restores a state before the first batch; a sum is added when its metric is first logged again."""
        self._pending = dict(state["sums"])
        for name, metric in _metrics(module):
            if name in state["metrics"]:
                metric._update_count = state["metrics"][name]["updates"]
                for key, value in state["metrics"][name]["state"].items():
                    setattr(metric, key, _moved(value, metric.device))

    @staticmethod
    def check(state: Mapping[str, Any], module: pl.LightningModule) -> None:
        """Checks that sums and states of metrics fit the module.

        Raises:
            MalformedError: They do not; the message says which.
        """
        for key, each in state["sums"].items():
            if each["value"].dim() or (each["count"] is not None and each["count"].dim()):
                raise MalformedError(f"the sum {key} is {short(each['value'])}, not a number")
        for name, metric in _metrics(module):
            found = state["metrics"].get(name, {"state": metric.metric_state})["state"]
            if found.keys() != metric.metric_state.keys():
                raise MalformedError(f"the metric {name} holds {', '.join(found) or 'nothing'}")
            for key, value in metric.metric_state.items():
                parts = [found[key]] if isinstance(value, Tensor) else found[key]
                same = isinstance(found[key], Tensor) == isinstance(value, Tensor)
                if not same or (isinstance(value, Tensor) and _form(parts[0]) != _form(value)):
                    raise MalformedError(f"the metric {name} has {short(found[key])} for {key}")

    def add(self, trainer: pl.Trainer) -> None:
        """Adds the restored sums of metrics that this batch has logged. To be called after each batch."""
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


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype


def _metrics(module: pl.LightningModule) -> Iterator[tuple[str, Metric]]:
    return ((name, each) for name, each in module.named_modules() if isinstance(each, Metric))


def _of_cpu(value: Any) -> Any:
    return None if value is None else _moved(value, "cpu")


def _moved(value: Any, device: Any) -> Any:
    return [each.to(device) for each in value] if isinstance(value, list) else value.to(device)
