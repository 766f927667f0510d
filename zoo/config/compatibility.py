"""Which data sets a model can be trained on: those whose examples are of the kind of its own default data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.config import plugins
from zoo.config.help import iter_files
from zoo.config.instantiate import resolve_class, resolve_target
from zoo.errors import ConfigError, did_you_mean

_DEFAULT = re.compile(r"^  - override /data: ([\w-]+)$", re.MULTILINE)
_TARGET = re.compile(r"^_target_: ([\w.]+)$", re.MULTILINE)


def check(composed: Mapping[str, Any]) -> None:
    """Refuses data that have no examples of the kind that the model takes."""
    for error in iter_errors(composed):
        raise error


def iter_errors(composed: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yields an error if the chosen data have no examples of the kind that the model takes.

    Data of installed packages are not judged: they may serve this project's models by other classes.
    """
    model, data = composed["names"].get("model"), composed["names"].get("data")
    default = _find_default_data(model)
    target = composed["data"].get("_target_")
    if default in (None, data) or not _is_ours(target) or not _is_ours(_find_target(default)):
        return
    wanted = _resolve_kind(_find_target(default))
    if _resolve_kind(target) == wanted:
        return
    targets = {name: _find_target(name) for name in plugins.find_choices("data")}
    fitting = [name for name, each in targets.items() if _is_ours(each) and _resolve_kind(each) == wanted]
    yield ConfigError(f"model={model} cannot be trained on data={data}. Data that fit: {', '.join(fitting)}.")


def find_models(data: str) -> list[str]:
    """Returns the names of the models that data of this name fit, those first whose own data they are."""
    if data not in (known := plugins.find_choices("data")):
        raise ConfigError(f"there is no data {data!r}. {did_you_mean(data, known)}")
    target = _find_target(data)
    defaults = {name: _find_default_data(name) for name in plugins.find_choices("model")}
    targets = {name: _find_target(default) for name, default in defaults.items()}
    ours = [name for name, each in targets.items() if _is_ours(each)] if _is_ours(target) else []
    fitting = [name for name in ours if _resolve_kind(targets[name]) == _resolve_kind(target)]
    others = [name for name, default in defaults.items() if default == data and name not in fitting]
    return sorted(fitting, key=lambda name: defaults[name] != data) + others


def _find_default_data(model: str | None) -> str | None:
    """Returns the name of the data that a model's file chooses."""
    path = plugins.find_choices("model").get(model or "")
    found = [name for each in iter_files(path) for name in _DEFAULT.findall(_read(each))] if path is not None else []
    return found[-1] if found else None


def _find_target(data: str | None) -> str | None:
    """Returns what a data set's file builds."""
    path = plugins.find_choices("data").get(data or "")
    found = [name for each in iter_files(path) for name in _TARGET.findall(_read(each))] if path is not None else []
    return found[-1] if found else None


def _resolve_kind(target: Any) -> tuple[type[Any], str]:
    """Returns the data module that a target makes, and the kind of its examples where it has several."""
    return resolve_class(target, "data"), getattr(resolve_target(target, "data"), "kind", "")


def _is_ours(target: Any) -> bool:
    return isinstance(target, str) and target.startswith("zoo.")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
