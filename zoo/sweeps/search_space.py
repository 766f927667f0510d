"""The settings of a search: the options that it may change, its metric, and the number of trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.config.instantiate import resolve_target
from zoo.errors import ConfigError, did_you_mean

DEFAULTS = {"n_trials": "20", "metric": "", "direction": "", "pruner": "median", "seed": "0"}
"""Options `hydra.sweeper.*` with their defaults. Without a metric, the model's primary one is taken."""
_DIRECTIONS = {"max": "maximize", "min": "minimize"}


def parse_settings(given: Mapping[str, str]) -> dict[str, str]:
    settings = dict(DEFAULTS)
    for key, value in given.items():
        name = key.removeprefix("hydra.sweeper.")
        if key in ("hydra/sweeper", "hydra.sweep.dir"):
            continue
        if not key.startswith("hydra.sweeper.") or name not in DEFAULTS:
            raise ConfigError(
                f"the search has no option {key!r}. {did_you_mean(key, [f'hydra.sweeper.{n}' for n in DEFAULTS])}"
            )
        settings[name] = value
    for name in ("n_trials", "seed"):
        if not settings[name].isdigit():
            raise ConfigError(f"hydra.sweeper.{name}={settings[name]}: write a whole number")
    for name, choices in (("direction", ("", *_DIRECTIONS.values())), ("pruner", ("median", "none"))):
        if settings[name] not in choices:
            raise ConfigError(f"hydra.sweeper.{name}={settings[name]}: write {' or '.join(filter(None, choices))}")
    if settings["metric"].startswith(("test/", "truth/")):
        raise ConfigError(f"hydra.sweeper.metric={settings['metric']}: the test set has no say in a choice")
    return settings


def choose_objective(settings: Mapping[str, str], composed: Mapping[str, Any]) -> dict[str, str]:
    """The metric by which trials are compared, and its direction."""
    task = resolve_target(composed["model"]["_target_"], "model", is_root=True)
    metric = settings["metric"] or task.primary
    direction = settings["direction"] or _DIRECTIONS.get(task.mode_of(metric) or "")
    if not direction:
        raise ConfigError(
            f"hydra.sweeper.metric={metric}: the model does not say whether more or less of it is better; write "
            f"hydra.sweeper.direction=maximize or minimize, or take its primary metric, {task.primary}"
        )
    return {"metric": metric, "direction": direction}


def parse_space(own: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The overrides that all trials share, and the distribution of each option that is searched."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(own))
    except HydraException as error:
        raise ConfigError(str(error).splitlines()[0]) from error
    space = {each.get_key_element(): _distribution(each) for each in parsed if each.is_sweep_override()}
    if not space:
        raise ConfigError("nothing to search: write an option as interval(a, b), range(a, b) or choice(a, b)")
    return [str(each.input_line) for each in parsed if not each.is_sweep_override()], space


def _distribution(override: Any) -> Any:
    from hydra.core.override_parser.types import IntervalSweep, RangeSweep
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    value = override.value()
    if isinstance(value, IntervalSweep):
        kind = IntDistribution if isinstance(value.start, int) and isinstance(value.end, int) else FloatDistribution
        return kind(value.start, value.end, log="log" in value.tags)
    if isinstance(value, RangeSweep):
        found = list(override.sweep_iterator())
        if all(isinstance(each, int) for each in found) and len(found) > 1:
            return IntDistribution(min(found), max(found), step=abs(found[1] - found[0]))
        return CategoricalDistribution(found)
    return CategoricalDistribution(list(override.sweep_string_iterator()))


def example(distribution: Any) -> Any:
    return distribution.choices[0] if hasattr(distribution, "choices") else distribution.low
