"""Checks that a model can be trained on data: examples must be of the kind of its own default data."""

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


def check(config: Mapping[str, Any]) -> None:
    """Refuses data that have no examples of the kind that the model takes."""
    for error in iter_errors(config):
        raise error


def iter_errors(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yields an error if the chosen data have no examples of the kind that the model takes.

    Data of installed packages are not judged: they may serve this project's models by other classes.
    """
    model, data = config["names"].get("model"), config["names"].get("data")
    default = _find_default_data(model)
    target = config["data"].get("_target_")
    if default in (None, data) or not _is_ours(target) or not _is_ours(_find_target(default)):
        return
    kind = _resolve_kind(_find_target(default))
    if _resolve_kind(target) == kind:
        return
    targets = {name: _find_target(name) for name in plugins.find_choices("data")}
    choices = [name for name, candidate in targets.items() if _is_ours(candidate) and _resolve_kind(candidate) == kind]
    yield ConfigError(f"model={model} cannot be trained on data={data}. Data that fit: {', '.join(choices)}.")


def find_models(data: str) -> list[str]:
    """Returns the names of the models that data of this name fit, those first whose own data they are."""
    if data not in (choices := plugins.find_choices("data")):
        raise ConfigError(f"there is no data {data!r}. {did_you_mean(data, choices)}")
    target = _find_target(data)
    defaults = {name: _find_default_data(name) for name in plugins.find_choices("model")}
    targets = {name: _find_target(default) for name, default in defaults.items()}
    own_models = [name for name, candidate in targets.items() if _is_ours(candidate)] if _is_ours(target) else []
    models = [name for name in own_models if _resolve_kind(targets[name]) == _resolve_kind(target)]
    other_models = [name for name, default in defaults.items() if default == data and name not in models]
    return sorted(models, key=lambda name: defaults[name] != data) + other_models


def _find_default_data(model: str | None) -> str | None:
    """Returns the name of the data that a model's file chooses."""
    path = plugins.find_choices("model").get(model or "")
    files = iter_files(path) if path is not None else ()
    names = [name for file in files for name in _DEFAULT.findall(_read(file))]
    return names[-1] if names else None


def _find_target(data: str | None) -> str | None:
    """Returns what a data set's file builds."""
    path = plugins.find_choices("data").get(data or "")
    files = iter_files(path) if path is not None else ()
    targets = [target for file in files for target in _TARGET.findall(_read(file))]
    return targets[-1] if targets else None


def _resolve_kind(target: Any) -> tuple[type[Any], str]:
    """Returns the data module that a target makes, and the kind of its examples where it has several."""
    return resolve_class(target, "data"), getattr(resolve_target(target, "data"), "kind", "")


def _is_ours(target: Any) -> bool:
    return isinstance(target, str) and target.startswith("zoo.")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
