"""Options that a model or its data adds to `zoo predict`, `evaluate` and `maps`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple


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


def given(options: argparse.Namespace, known: Iterable[CommandOption]) -> dict[str, Any]:
    """Returns key -> value of the options that were given."""
    return {each.key: getattr(options, each.key) for each in known if hasattr(options, each.key)}
