"""Checks a configuration before anything is built or written: the values of its options, and whether its data fit.

Options at the top and `trainer.*` are checked by a list, and parts by their signatures. Messages name an option as it
is given, `optimizer.lr`, and not by its place in the model. A model fits data whose examples are of the kind of its own
default data.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from zoo.config import plugins
from zoo.config.groups import GROUPS_BY_NODE, INJECTED, MECHANISMS
from zoo.errors import ConfigError, did_you_mean
from zoo.types import (
    AnyFloat,
    AnyInt,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Seed,
    TextPattern,
    explain_mismatch,
)

_Limit = NonNegativeInt | Fraction
_Duration = Annotated[str, TextPattern(r"\d+:\d\d:\d\d:\d\d", "days:hours:minutes:seconds, such as 00:01:30:00,")]
KEYS: dict[str, Any] = {
    "seed": Seed,
    "threads": PositiveInt | None,
    "run_dir": str | None,
    "init": str | None,
    "resume": str | None,
    "check": bool,
    "paths.data": str,
    "paths.cache": str,
    "paths.runs": str,
    "trainer.accelerator": str,
    "trainer.strategy": str,
    "trainer.devices": int | str | list[int],
    "trainer.num_nodes": PositiveInt,
    "trainer.max_restarts": NonNegativeInt,
    "trainer.precision": Literal["32-true", "bf16-mixed", "16-mixed", "bf16", "32", "16", 32, 16],
    "trainer.gradient_clip_val": NonNegativeFloat | None,
    "trainer.accumulate_grad_batches": PositiveInt,
    "trainer.log_every_n_steps": PositiveInt,
    "trainer.max_time": _Duration | None,
    "trainer.sync_batchnorm": bool,
    "trainer.detect_anomaly": bool,
    "trainer.limit_train_batches": _Limit,
    "trainer.limit_val_batches": _Limit,
    "trainer.limit_test_batches": _Limit,
    "trainer.profiler": Literal["simple", "advanced"] | None,
    "penalty.coverage": AnyFloat,
    "penalty.doubly_stochastic": AnyFloat,
    "penalty.locality": AnyFloat,
    "penalty.guidance_squared": AnyFloat,
    "penalty.guidance_cross_entropy": AnyFloat,
    "penalty.entropy": AnyFloat,
    "penalty.head_disagreement": AnyFloat,
    "penalty.layers": list[AnyInt | str] | None,
}
"""The types of options that no signature of this project has."""
_DEFAULT = re.compile(r"^  - override /data: ([\w-]+)$", re.MULTILINE)
_TARGET = re.compile(r"^_target_: ([\w.]+)$", re.MULTILINE)


def check(config: Mapping[str, Any]) -> None:
    """Refuses a configuration with an option that does not fit, or with data that the model cannot take."""
    for problem in iter_errors(config):
        raise problem


def iter_errors(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yields an error for each option that does not fit, and for data that the model cannot take."""
    key_errors = list(iter_key_errors(config))
    yield from key_errors
    if not any(True for _ in _iter_misplaced(config)):
        yield from _iter_part_errors(config)
    if not key_errors:
        yield from iter_data_errors(config)


def iter_key_errors(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yields the errors that are found without the parts' signatures, whose import takes a second."""
    yield from _iter_misplaced(config)
    for name, hint in KEYS.items():
        group, _, key = name.rpartition(".")
        options = config[group] if group else config
        if isinstance(options, Mapping) and key in options and (message := explain_mismatch(options[key], hint, name)):
            yield ConfigError(message)


def _iter_misplaced(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yields an error for each value in place of a mapping, a part or the callback that saves."""
    for group in GROUPS_BY_NODE:
        if group in config and not isinstance(config[group], Mapping):
            yield ConfigError(f"{group}={config[group]!r} does not fit: it is to be a mapping")
    for group in INJECTED:
        for name, node in _get_entries(config[group]):
            if not isinstance(node, Mapping) or "_target_" not in node:
                yield ConfigError(f"{group}.{name}={node!r} does not fit: a part with a _target_ belongs there")
    if "checkpoint" not in config["callbacks"]:
        yield ConfigError("callbacks: a run needs `checkpoint`, which keeps its weights; take callbacks=default")


def _iter_part_errors(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yields the errors of everything that is built. The sizes of the data are not known yet."""
    from zoo.config import instantiate

    mechanisms = [group for group in MECHANISMS if config["names"].get(group)]
    groups = [group for group in ("optimizer", "scheduler", *mechanisms, "optimization") if group in config]
    nodes = [("data", config["data"], set[str]()), *((group, config[group], set[str]()) for group in groups)]
    for group, injected in INJECTED.items():
        nodes += [(f"{group}.{name}", node, injected) for name, node in _get_entries(config[group])]
    try:
        injected_sizes = set(
            inspect.signature(instantiate.resolve_target(config["model"].get("_target_"), "model")).parameters
        )
    except ConfigError:
        injected_sizes = set()
    nodes += [("model", config["model"], injected_sizes)]
    checked: list[Any] = []
    for path, node, injected in nodes:
        yield from instantiate.iter_errors(node, path, injected, exclude=checked)
        checked.append(node)


def _get_entries(group: Any) -> list[tuple[str, Any]]:
    return list(group.items()) if isinstance(group, Mapping) else []


def iter_data_errors(config: Mapping[str, Any]) -> Iterator[ConfigError]:
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
    return _find_last(_DEFAULT, "model", model)


def _find_target(data: str | None) -> str | None:
    """Returns what a data set's file builds."""
    return _find_last(_TARGET, "data", data)


def _find_last(pattern: re.Pattern[str], group: str, name: str | None) -> str | None:
    """Returns what a pattern finds last in the file of a choice and its bases."""
    path = plugins.find_choices(group).get(name or "")
    files = plugins.iter_files(path) if path is not None else ()
    values = [value for file in files for value in pattern.findall(file.read_text(encoding="utf-8"))]
    return values[-1] if values else None


def _resolve_kind(target: Any) -> tuple[type[Any], str]:
    """Returns the data module that a target makes, and the kind of its examples where it has several."""
    from zoo.config import instantiate

    return instantiate.resolve_class(target, "data"), getattr(instantiate.resolve_target(target, "data"), "kind", "")


def _is_ours(target: Any) -> bool:
    return isinstance(target, str) and target.startswith("zoo.")
