"""The options that a sweep varies: how many values each has, counted before they are written out; do they fit."""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from zoo.config import checks, compose
from zoo.config.groups import GROUPS
from zoo.errors import ConfigError, get_reason
from zoo.sweeps.jobs import Job
from zoo.types import explain_mismatch

MOST_JOBS = 10_000
"""The most jobs of a sweep, unless hydra.sweep.max_jobs= says otherwise."""
_SECONDS = 5.0
"""Between two messages about the progress of the check."""


@dataclass(frozen=True)
class Axis:
    """One override of a sweep.

    Args:
        key: The option.
        parsed: The override as Hydra has parsed it.
    """

    key: str
    parsed: Any

    @property
    def is_swept(self) -> bool:
        return bool(self.parsed.is_sweep_override())

    def __len__(self) -> int:
        """Returns the number of values; those of a range are not written out."""
        if not self.is_swept:
            return 1
        if self.parsed.is_range_sweep():
            values = self.parsed.value()
            if not values.step:
                raise ConfigError(f"{self.key}: a range needs a step other than 0")
            count: int = math.ceil((values.stop - values.start) / values.step)
            return max(0, count)
        return sum(1 for _ in self.parsed.sweep_iterator())

    def overrides(self) -> list[str]:
        """Returns the override with each of its values."""
        if not self.is_swept:
            return [str(self.parsed.input_line)]
        return [f"{self.key}={value}" for value in self.parsed.sweep_string_iterator()]

    def check_plain(self) -> None:
        """Refuses values that do not fit, of an option at the top, without composing them."""
        if self.key in checks.KEYS:
            for value in map(_plain, self.parsed.sweep_iterator()):
                if value == "":
                    raise ConfigError(f"{self.key}: one of its values is empty")
                problem = explain_mismatch(value, checks.KEYS[self.key], self.key)
                if problem and "${" not in str(value):  # which is composed
                    raise ConfigError(problem)


def parse_overrides(overrides: Sequence[str]) -> list[Any]:
    """Returns overrides as Hydra parses them."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    with _translate_errors():
        return list(OverridesParser.create().parse_overrides(list(overrides)))


@contextmanager
def _translate_errors() -> Iterator[None]:
    from hydra.errors import HydraException

    try:
        yield
    except HydraException as error:
        raise ConfigError(get_reason(error)) from error


def read_axes(overrides: Sequence[str]) -> list[Axis]:
    """Reads the axes of a sweep from its overrides."""
    axes = [Axis(override.get_key_element(), override) for override in parse_overrides(overrides)]
    with _translate_errors():
        for axis in axes:
            len(axis)  # an interval cannot be counted
    return axes


def expand_grid(overrides: Sequence[str], most: int = MOST_JOBS) -> list[Job]:
    """Makes a job for every combination of values, the last option changing fastest.

    Args:
        overrides: Those of the sweep.
        most: The most jobs; they are counted before they are written out.
    """
    axes = read_axes(overrides)
    if compose.get_value(overrides, "run_dir") is not None and not any(a.is_swept and a.key == "run_dir" for a in axes):
        raise ConfigError("a sweep gives each of its runs a run_dir; choose paths.runs=PATH instead")
    for axis in axes:
        if not len(axis):
            raise ConfigError(f"{axis.key}: this range has no value")
        if axis.is_swept and axis.key in ("init", "resume", "run_dir"):
            raise ConfigError(f"{axis.key} cannot be swept over")
    count = math.prod(len(axis) for axis in axes)
    if count > most:
        sizes = " x ".join(f"{len(axis):,} of {axis.key}" for axis in axes if len(axis) > 1)
        raise ConfigError(
            f"the sweep has {count:,} jobs ({sizes}), and {most:,} are the most; "
            f"give fewer values, or hydra.sweep.max_jobs={count}"
        )
    swept = [axis.key for axis in axes if axis.is_swept]
    return [
        Job(list(overrides_of_job), {key: compose.get_value(overrides_of_job, key) or "" for key in swept})
        for overrides_of_job in itertools.product(*(axis.overrides() for axis in axes))
    ]


def check_values(axes: Sequence[Axis]) -> None:
    """Composes every combination of choices from groups, and with it the first and the last value of other options.

    Which options there are depends on these choices alone, so that it is not needed to compose every job: the values
    between can differ in their types only, which `Axis.check_plain` compares.

    Args:
        axes: The overrides of the sweep.
    """
    plain = [axis for axis in axes if axis.is_swept and axis.key not in GROUPS]
    for axis in plain:
        axis.check_plain()
    choices = [axis.overrides() for axis in axes]
    places = [place for place, axis in enumerate(axes) if axis in plain]
    groups = [values if place not in places else values[:1] for place, values in enumerate(choices)]
    others = [(place, value) for place in places for value in _select_representative(choices[place])]
    total = math.prod(map(len, groups)) * (1 + len(others))
    printed_at, done = time.monotonic(), 0
    for first in itertools.product(*groups):
        for overrides in (first, *((*first[:place], value, *first[place + 1 :]) for place, value in others)):
            compose.compose(overrides)
            done += 1
            if time.monotonic() - printed_at > _SECONDS:
                printed_at = time.monotonic()
                print(f"sweep: {done:,} of {total:,} configurations are checked", file=sys.stderr, flush=True)


def _plain(value: Any) -> Any:
    """Returns a value without Hydra's marks of quotes."""
    if isinstance(value, list):
        return [_plain(member) for member in value]
    return getattr(value, "text", value)


def _select_representative(values: Sequence[str]) -> list[str]:
    """Selects the values of an option that are composed besides the first: the last, and those with references."""
    between = [value for value in values[1:-1] if "$" in value]
    return [*between, *values[1:][-1:]]
