"""Checkpoints: one self-contained file of weights, configuration, vocabularies and metrics, in plain types.

    {"zoo": {"format": 6, "version", "model", "config", "data", "sizes", "metrics"}, "state_dict": ..., ...}

`best.ckpt` holds no more than this; `last.ckpt` also holds what a run needs to be continued.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins import CheckpointIO
from torch import Tensor
from torch.nn.modules import module as modules

from zoo import __version__
from zoo.checkpoints import migrations, untrusted
from zoo.checkpoints.migrations import FORMAT
from zoo.config import compose
from zoo.config.instantiate import build, resolve_class
from zoo.errors import CheckpointError, MissingPackageError, get_reason, join_few
from zoo.io import open_atomic_bytes
from zoo.tasks.base import Task, TaskData
from zoo.validation import Predicate, ValidationError, validate

_NEEDED = ("format", "version", "model", "config", "data", "sizes", "metrics")


def make_metadata(resolved: Mapping[str, Any], data: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Makes the section `zoo` of a checkpoint, in plain types."""
    return {
        "format": FORMAT,
        "version": __version__,
        "model": resolved["names"]["model"],
        "config": dict(resolved),
        "data": dict(data),
        "sizes": dict(sizes),
        "metrics": {},
    }


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a checkpoint at once: a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic_bytes(path) as file:
        torch.save(content, file)


def read(path: Path | str) -> dict[str, Any]:
    """Reads a checkpoint of this project in the present format; any other file is a CheckpointError."""
    path = Path(path)
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder; a checkpoint is a file, such as {path}/checkpoints/best.ckpt")
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint {path}")
    if not path.is_file() or not zipfile.is_zipfile(path):
        raise CheckpointError(f"{path} is not a checkpoint, or was cut short: it is {path.stat().st_size:,} bytes")
    try:
        with path.open("rb") as file:
            content: dict[str, Any] = untrusted.load(file)
    except Exception as error:
        what = "it is damaged, or holds other things than weights and plain values"
        raise CheckpointError(f"{path} cannot be read: {what} ({get_reason(error)})") from error
    about = content.get("zoo") if isinstance(content, dict) else None
    if not isinstance(about, dict) or not isinstance(content.get("state_dict"), dict):
        raise CheckpointError(f"{path} is not a checkpoint of this project: it has no 'zoo' section")
    if type(about.get("format")) is not int:
        raise CheckpointError(f"{path} is not a checkpoint of this project: its format is {about.get('format')!r}")
    if about["format"] > FORMAT:
        raise CheckpointError(
            f"{path} has format {about['format']}, written by version {about.get('version')}; "
            f"this version reads up to format {FORMAT}: upgrade with pip install -U attention-zoo"
        )
    try:
        content = migrations.migrate(content)
        missing = [key for key in _NEEDED if key not in content["zoo"]]
        if missing:
            raise CheckpointError(f"{path} is not a whole checkpoint: its 'zoo' section lacks {', '.join(missing)}")
        untrusted.check(content)
    except ValidationError as error:
        raise CheckpointError(f"{path} is not a sound checkpoint: {error}") from error
    _check_finite(content["state_dict"], path)
    return content


class AtomicCheckpointIO(CheckpointIO):
    """Lets Lightning write and read checkpoints by `write` and `read`."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        write(Path(path), checkpoint)

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> dict[str, Any]:
        return read(path)

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def load(path: Path | str) -> Task:
    """Loads the trained module of a checkpoint, in evaluation mode; `module.about` is its section `zoo`."""
    content = read(path)
    module = build_module(content, path)
    module.eval()
    return module


def build_module(content: Mapping[str, Any], path: Path | str) -> Task:
    """Builds the module that a checkpoint's content describes, with its weights."""
    about, weights = content["zoo"], content["state_dict"]
    try:
        untrusted.check_sizes(about, weights)
        _check_implied(about, path)
        with (
            torch.device("meta"),
            _limit_parts(len(weights)),
        ):  # takes no memory, whatever sizes the configuration asks for
            described: Task = build(about["config"]["model"], "model", **about["sizes"])
        weights = migrations.drop_unused_weights(content, described.state_dict())
        check_state_dict(described, weights, path)
        module: Task = build(about["config"]["model"], "model", **about["sizes"])
    except CheckpointError:
        raise
    except MissingPackageError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except Exception as error:  # a forged configuration may raise anything
        what = "its configuration does not describe a model of this version"
        raise CheckpointError(f"{path}: {what}: {get_reason(error)}") from error
    module.load_state_dict(weights)
    _check_rows(module, content, path)
    module.about = {**about, "path": str(path)}
    return module


def _check_finite(weights: Mapping[str, Tensor], path: Path | str) -> None:
    """Refuses weights with which every answer would be NaN."""
    for name, weight in weights.items():
        if weight.is_floating_point() or weight.is_complex():
            numbers = weight if weight.element_size() > 1 else weight.float()  # not all kinds of 8 bits are compared
            count = weight.numel() - int(torch.isfinite(numbers).sum())
            if count:
                what = f"{count:,} of the {weight.numel():,} numbers of {name} are NaN or infinite"
                raise CheckpointError(f"{path} has no usable weights: {what}. Train the model anew, or use another.")


def _check_implied(about: Mapping[str, Any], path: Path | str) -> None:
    """Checks that sizes are those of the vocabularies and the preprocessing: there may be no weight that tells them."""
    kind: type[TaskData] = resolve_class(about["config"]["data"].get("_target_"), "data")
    try:
        validate(about["data"], kind.form, "zoo.data")
        for name, size in kind.sizes_of(about["data"]).items():
            validate(about["sizes"].get(name), Predicate(f"{size:,} as in zoo.data", size.__eq__), f"zoo.sizes.{name}")
    except ValidationError as error:
        raise CheckpointError(f"{path} is not a sound checkpoint: {error}") from error


def check_names(module: Task, content: Mapping[str, Any], path: Path | str) -> None:
    """Checks that a content has the vocabularies of a module."""
    try:
        validate(content["zoo"]["data"], {vocabulary: [str] for vocabulary in module.vocabularies()}, "zoo.data")
    except ValidationError as error:
        raise CheckpointError(f"{path} is not a sound checkpoint: {error}") from error


def _check_rows(module: Task, content: Mapping[str, Any], path: Path | str) -> None:
    """Checks that vocabularies have one name for each row of the weights that they name."""
    check_names(module, content, path)
    for vocabulary, parameters in module.vocabularies().items():
        names = content["zoo"]["data"][vocabulary]
        for parameter, axis in parameters.items():
            rows = content["state_dict"][parameter].shape[axis]
            if rows != len(names):
                message = f"zoo.data.{vocabulary} has {len(names):,} names, and {parameter} {rows:,} rows"
                raise CheckpointError(f"{path} is not a sound checkpoint: {message}")


@contextmanager
def _limit_parts(weights: int) -> Iterator[None]:
    """Stops building a module with far more parts than a checkpoint has weights, within the context."""
    most, count = 1000 + 20 * weights, 0

    def count_part(*_: Any) -> None:
        nonlocal count
        count += 1
        if count > most:
            raise ValidationError(f"the model would have more than {most:,} parts, and there are {weights} weights")

    hooks = [
        modules.register_module_parameter_registration_hook(count_part),
        modules.register_module_module_registration_hook(count_part),
        modules.register_module_buffer_registration_hook(count_part),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def load_weights(module: Task, weights: Mapping[str, Tensor], path: Path | str) -> None:
    """Loads all weights; if they are not those of the module, the error lists the first few that differ."""
    check_state_dict(module, weights, path)
    module.load_state_dict(weights)


def check_state_dict(module: Task, weights: Mapping[str, Tensor], path: Path | str) -> None:
    """Checks that weights have the names, shapes and kinds of number of this module's."""
    own = module.state_dict()
    lacking, unknown = [n for n in own if n not in weights], [n for n in weights if n not in own]
    other = [
        f"{name} is {tuple(weights[name].shape)}, the model's is {tuple(own[name].shape)}"
        for name in own
        if name in weights and weights[name].shape != own[name].shape
    ]
    other += [
        f"{name} is of {str(weights[name].dtype)[6:]}, the model's of {str(own[name].dtype)[6:]}"
        for name in own
        if name in weights and weights[name].dtype != own[name].dtype
        if not (weights[name].is_floating_point() and own[name].is_floating_point())
    ]
    problems = [f"it lacks {join_few(lacking, 3)}"] * bool(lacking)
    problems += [f"it has {join_few(unknown, 3)} besides"] * bool(unknown)
    problems += [join_few(other, 3)] * bool(other)
    if problems:
        raise CheckpointError(f"{path} is of another model: {'; '.join(problems)}")


def create(model: str, *, data: str | None = None, attention: str | None = None, **options: Any) -> Task:
    """Creates a new module by name: `create("gat", attention="uniform", features=16, classes=3)`.

    Args:
        model: A name that `zoo list model` shows.
        data: The data set that gives the model its sizes; the model's default if not given.
        attention: A mechanism instead of the model's own.
        options: The sizes, so that the data need not be read; also any other option by its dotted name, with `__` for
            the dots (`model__net__dim=16`).
    """
    choices = {"model": model, "data": data, "attention": attention}
    overrides = [f"{key}={value}" for key, value in choices.items() if value is not None]
    overrides += [f"{key.replace('__', '.')}={value}" for key, value in options.items() if "__" in key]
    composed = compose.compose(overrides)
    sizes = {key: value for key, value in options.items() if "__" not in key}
    if not sizes:
        sizes = build(composed["data"], "data").sizes()
    module: Task = build(composed["model"], "model", **sizes)
    return module
