"""The preflight of a run: reports everything that is wrong with its options and data, then tries one batch.

`zoo check model=gat data=graph_files ...` or `python train.py ... check=true`. It trains nothing and writes nothing.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from zoo.checkpoints import checkpoint
from zoo.config import checks, compose, instantiate
from zoo.data.loader import preserve_rng
from zoo.data.tables import collect_errors
from zoo.errors import ConfigError, ProblemsError, ZooError, count_noun, escape_control, join_few, truncate
from zoo.memory import is_out_of_memory
from zoo.tasks.base import Invariance, Task, TaskData
from zoo.training import run_dir as run_directory
from zoo.training.evaluation import describe_empty_splits
from zoo.training.memory import find_excess, read_field, try_estimate
from zoo.training.run_config import RunConfig
from zoo.training.setup import (
    check_trainable,
    make_trainer,
    read_data,
    seed_generators,
    setup_module,
    silence_lightning,
)

_MAX_LISTED = 200
_MAX_SECONDS = 30.0
_STATUS = Path("/proc/self/status")
"""What Linux says of this process."""


def check(overrides: Sequence[str]) -> list[str]:
    """Returns a report of what is right, a line each; raises a ProblemsError that lists everything that is wrong."""
    silence_lightning()
    valid, override_errors = compose.partition_overrides(
        [override for override in overrides if override.partition("=")[0] != "check"]
    )
    problems = [str(error) for error in override_errors]
    report: list[str] = []
    try:
        tree = compose.compose_unchecked(valid)
    except ConfigError as error:
        raise ProblemsError([*problems, str(error)]) from error
    problems += [str(error) for error in _iter_option_errors(tree)]
    data, errors = _read(tree)
    problems += errors
    if not problems and data is not None:
        module, errors = _build_model(tree, data)
        problems += errors
        if module is not None and not problems:
            problems += try_batch(tree, module, data, report)
    if problems:
        raise ProblemsError(problems, _MAX_LISTED)
    return report


def show(overrides: Sequence[str]) -> None:
    """Prints the report."""
    start = time.monotonic()
    for line in check(overrides):
        print(f"  {escape_control(line)}")
    print(f"no problem found in {time.monotonic() - start:.1f} s; nothing was trained")


def _iter_option_errors(tree: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yields an error for each option that does not fit. Sizes are not known yet."""
    yield from checks.iter_errors(tree)
    if any(True for _ in checks.iter_key_errors(tree)):
        return
    run_dir = tree["run_dir"]
    if run_dir is not None and tree["resume"] is None:
        try:
            run_directory.check_free(Path(run_dir).absolute(), tree, resumes=False)
        except ConfigError as error:
            yield error
    runs = Path(run_dir or tree["paths"]["runs"]).absolute()
    parent = next(folder for folder in (runs, *runs.parents) if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        yield ConfigError(f"{parent} cannot be written, where the run would go; give another run_dir or paths.runs")
    try:
        _make_trainer(RunConfig(tree))
    except ConfigError as error:
        yield error


def _make_trainer(config: RunConfig) -> pl.Trainer:
    """Makes a trainer for one process. It prepares a batch and never trains."""
    return make_trainer(config.trainer, devices=1, num_nodes=1, strategy="auto", max_epochs=1, logger=False)


def _read(tree: Mapping[str, Any]) -> tuple[TaskData | None, list[str]]:
    """Reads the data; returns them, unless they cannot be read, and every problem found on the way."""
    with collect_errors() as errors, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            data: TaskData | None = read_data(RunConfig(tree))
            assert data is not None
            if not errors:
                check_trainable(data)
        except ConfigError:  # listed with the options already, unless the constructor alone finds it
            data, errors = None, [*errors, *_unless_listed(tree)]
        except ZooError as error:
            data = None
            if not errors or "no row is usable" not in str(error):
                errors.append(error)  # type: ignore[arg-type]
    messages = [
        str(warning.message)
        for warning in caught
        if issubclass(warning.category, UserWarning) and "zoo" in str(warning.filename)
    ]
    for message in dict.fromkeys(messages):  # each once, however often the data are read
        print(f"zoo: {truncate(escape_control(message))}", file=sys.stderr)
    return data, [str(error) for error in errors]


def _unless_listed(tree: Mapping[str, Any]) -> list[Any]:
    if any(True for _ in instantiate.iter_errors(tree["data"], "data")):
        return []
    try:
        instantiate.build(tree["data"], "data").setup("fit")
    except ConfigError as error:
        return [error]
    return []


def _build_model(tree: Mapping[str, Any], data: TaskData) -> tuple[Task | None, list[str]]:
    """Builds the model with the weights that it would start from; None if that fails."""
    seed_generators(RunConfig(tree))
    try:
        module, _ = setup_module(RunConfig(tree), data)
        if tree["resume"] not in (None, "auto"):
            checkpoint.read(tree["resume"])
        optimization = copy.copy(module.optimization)
        optimization.scheduler = None  # which would ask the trainer for the number of steps
        optimization.configure(module)
    except ZooError as error:
        return None, [str(error)]
    return module, []


def check_memory(config: RunConfig, module: Task, data: TaskData) -> None:
    """Refuses a training whose largest step would take more memory than there is.

    Neither the model nor generators of random numbers change.
    """
    trainer = _make_trainer(config)
    with preserve_rng():
        module_copy = copy.deepcopy(module)
        estimate = try_estimate(module_copy, data, _make_step(trainer, module_copy, data))
    if (problem := find_excess(estimate, trainer.strategy.root_device)) is not None:
        raise ConfigError(problem)


def _make_step(trainer: pl.Trainer, module: Task, data: TaskData) -> Callable[[Any], Tensor]:
    """Returns a training step of a model that is not in a running loop, and moves the model to the trainer's device."""
    device = trainer.strategy.root_device
    module.trainer = trainer
    for name in ("log", "log_dict"):
        setattr(module, name, _ignore_log)
    module.to(device).train()

    def step(batch: Any) -> Tensor:
        with trainer.precision_plugin.train_step_context():
            loss = module.training_step(data.transfer_batch_to_device(batch, device, 0), 0)
        value = loss["loss"] if isinstance(loss, Mapping) else loss
        assert isinstance(value, Tensor)
        return value

    return step


def try_batch(tree: Mapping[str, Any], module: Task, data: TaskData, report: list[str]) -> list[str]:
    """Computes one batch forward and backward, and checks what its outputs must not depend on."""
    trainer = _make_trainer(RunConfig(tree))
    device = trainer.strategy.root_device
    step = _make_step(trainer, module, data)
    parameters = sum(p.numel() for p in module.parameters())
    report.append(f"model      {tree['names']['model']}, {parameters:,} parameters")

    estimate = try_estimate(module, data, step)
    if problem := find_excess(estimate, device):
        return [problem]
    module.zero_grad()
    batch, count = largest_batch(data.train_dataloader())
    examples, batches = count_noun(data.train_size(), "example"), count_noun(count, "batch")
    report.append(f"data       {tree['names']['data']}, {examples} in {batches} an epoch")
    report += data.summary().lines()
    report += [f"empty      {lack}" for lack in describe_empty_splits(data)]
    batch = data.transfer_batch_to_device(batch, device, 0)
    used = _start_measuring(device)
    try:
        value = step(batch)
        torch.autograd.backward(value)
    except ConfigError as error:  # a penalty that the model's maps do not serve
        return [str(error)]
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if is_out_of_memory(error):
            raise
        return [f"a batch cannot be computed: {str(error).splitlines()[0]}"]
    peak = _measure_peak(device)
    problems = list(_iter_gradient_errors(module, float(value.detach())))
    amount = f"{_format_bytes(peak)} at the largest batch" + (
        f", of which {_format_bytes(used)} were in use" if used else ""
    )
    report += [f"one batch  loss {float(value.detach()):.4f}", f"memory     {amount}"]
    if estimate is not None:
        report.append(f"estimate   {_format_bytes(estimate.bytes)} of tensors in a step with {estimate}")
    invariants = module.invariants(batch)
    problems += _find_dependent(module, batch, invariants)
    report += [f"outputs    do not depend on {invariant.part}" for invariant in invariants if not problems]
    report += [f"costs      {line}" for line in module.costs(batch)]
    module.zero_grad()
    return problems


def _ignore_log(*_: Any, **__: Any) -> None:
    """Replaces `log`, which needs a running loop."""


def _iter_gradient_errors(module: Task, loss: float) -> Iterator[str]:
    if not math.isfinite(loss):
        yield f"the loss of the first batch is {loss}; look at the data for values that are far too large"
    trainable = {name: p for name, p in module.named_parameters() if p.requires_grad}
    unused = [name for name, p in trainable.items() if p.grad is None]
    if unused:
        yield f"the loss does not depend on {join_few(unused, 10)}: use them, or freeze them with optimization.freeze"
    infinite = [name for name, p in trainable.items() if p.grad is not None and not torch.isfinite(p.grad).all()]
    if infinite and math.isfinite(loss):
        yield f"the gradient of {join_few(infinite, 10)} is not finite"


@torch.no_grad()
def _find_dependent(module: Task, batch: Any, invariants: Sequence[Invariance]) -> list[str]:
    module.eval()
    expected = module(batch) if invariants else None
    problems = []
    for invariant in invariants:
        original, changed = invariant.kept(expected), invariant.kept(module(invariant.batch))
        if not torch.allclose(original, changed, rtol=1e-4, atol=1e-5, equal_nan=True):
            change = float((original - changed).abs().max())
            problems.append(
                f"outputs change by up to {change:.3g} with {invariant.part}, on which they must not depend"
            )
    module.train()
    return problems


def largest_batch(loader: Any) -> tuple[Any, int]:
    """Returns the largest batch in bytes, and the number of batches of an epoch.

    Reading stops after `_MAX_SECONDS`.
    """
    largest, max_size, start = None, -1, time.monotonic()
    for batch in loader:
        size = _count_bytes(batch)
        if size > max_size:
            largest, max_size = batch, size
        if time.monotonic() - start > _MAX_SECONDS:
            break
    return largest, len(loader)


def _count_bytes(batch: Any) -> int:
    if isinstance(batch, Tensor):
        return batch.nbytes if batch.layout == torch.strided else batch.values().nbytes
    if hasattr(batch, "to_dict"):  # PyG's Data
        batch = batch.to_dict()
    if isinstance(batch, Mapping):
        return sum(map(_count_bytes, batch.values()))
    if isinstance(batch, list | tuple):
        return sum(map(_count_bytes, batch))
    if dataclasses.is_dataclass(batch):
        return sum(_count_bytes(getattr(batch, field.name)) for field in dataclasses.fields(batch))
    return 0


def _start_measuring(device: torch.device) -> int:
    """Resets the peak of memory where that is possible; returns the bytes in use."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
        return read_field(_STATUS, "VmRSS:") * 1024
    return 0


def _measure_peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        return read_field(_STATUS, "VmHWM:") * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _format_bytes(count: int) -> str:
    return f"{count / 2**30:.2f} GB" if count >= 2**30 else f"{count / 2**20:.0f} MB"
