"""Options that a model or its data adds to `zoo predict`, `evaluate` and `maps`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

R = TypeVar("R")


@dataclass(frozen=True)
class Number:
    """Reads the value of an option as a number of a range.

    Args:
        kind: int or float.
        least: Smallest number.
        is_open: If True, numbers must be larger than `least`.
    """

    kind: type[int] | type[float]
    least: float = 0
    is_open: bool = False

    def __call__(self, text: str) -> int | float:
        """Returns the number; argparse reports the error with the name of the option."""
        try:
            value = self.kind(text)
        except ValueError:
            value = math.nan
        is_inside = value > self.least if self.is_open else value >= self.least
        if not is_inside or math.isinf(value) or "_" in text:  # int() accepts 1_000
            range_ = f"above {self.least:g}" if self.is_open else f"from {self.least:g}"
            noun = "a whole number" if self.kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is out of its range: write {noun} {range_}")
        return value


COUNT = Number(int, 1)
NOT_NEGATIVE = Number(float, 0)
POSITIVE = Number(float, 0, is_open=True)


class CommandOption(NamedTuple):
    """An option of the command line, which sets the argument or attribute of the same name, with _ for -.

    Args:
        name: Name of the option, without the leading dashes.
        help: One line for `--help`.
        kind: Converts the text of the value. If None, the option is a flag.
        choices: The allowed values. Default: any.
        metavar: Placeholder of the value in `--help`.
        bare: Value of the option when it is given without one. Default: a value is required.
        is_repeated: If True, the option may be given several times, and its value is a list.
    """

    name: str
    help: str
    kind: Callable[[str], Any] | None = str
    choices: Sequence[str] = ()
    metavar: str | None = None
    bare: Any = None
    is_repeated: bool = False

    @property
    def key(self) -> str:
        """The name of the argument or attribute that the option sets."""
        return self.name.replace("-", "_")

    def keywords(self) -> dict[str, Any]:
        """Returns the arguments of argparse's `add_argument`. An option that is not given leaves no attribute."""
        more: dict[str, Any] = {"help": self.help, "default": argparse.SUPPRESS, "action": "store_true"}
        if self.kind is not None:
            more |= {"action": "append" if self.is_repeated else "store", "type": self.kind}
        if self.choices:
            more["choices"] = tuple(self.choices)
        if self.metavar is not None:
            more["metavar"] = self.metavar
        if self.bare is not None:
            more |= {"nargs": "?", "const": self.bare}
        return more


def replace_given(reading: R, **values: Any) -> R:
    """Returns options of reading with the values that a command gave; None: as in training."""
    return replace(reading, **{name: value for name, value in values.items() if value is not None})  # type: ignore[type-var]


def collect_given(options: argparse.Namespace, known: Iterable[CommandOption]) -> dict[str, Any]:
    """Returns key -> value of the options that were given."""
    return {each.key: getattr(options, each.key) for each in known if hasattr(options, each.key)}


BATCH_OPTIONS = (
    CommandOption(name="batch-size", kind=COUNT, metavar="N", help="examples at once; default: as in training"),
    CommandOption(
        name="num-workers", kind=Number(int), metavar="N", help="processes that read; default: as in training"
    ),
)
"""Options of all commands on checkpoints."""
FOLDER = CommandOption(
    name="folder", kind=Path, metavar="FOLDER", help="where the paths of a table begin; default: in the table's folder"
)
MOST_CHARACTERS = CommandOption(
    name="most-characters", kind=COUNT, metavar="N", help="the most characters of a text; default: as in training"
)
MOST_PIXELS = CommandOption(
    name="most-pixels", kind=COUNT, metavar="N", help="the most pixels of a picture; default: as in training"
)
