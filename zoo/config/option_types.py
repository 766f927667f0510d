"""Checks the values of a run's options: top-level keys and `trainer.*` by a list, and parts by their signatures.

Messages name an option as it is given, `optimizer.lr`, and not by its place in the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from zoo.config.groups import GROUPS_BY_NODE, INJECTED, MECHANISMS
from zoo.config.typecheck import explain_mismatch
from zoo.errors import ConfigError
from zoo.types import AnyFloat, AnyInt, Fraction, NonNegativeFloat, NonNegativeInt, PositiveInt, Seed, TextPattern

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


def check(config: Mapping[str, Any]) -> None:
    """Refuses a configuration with an option that does not fit, before anything is built or written."""
    for problem in iter_errors(config):
        raise problem


def iter_errors(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Yields an error for each option that does not fit."""
    yield from iter_key_errors(config)
    if not any(True for _ in _iter_misplaced(config)):
        yield from _iter_part_errors(config)


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
