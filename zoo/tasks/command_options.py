"""Options that a model or its data adds to `zoo predict`, `evaluate` and `maps`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple


class CommandOption(NamedTuple):
    """An option of the command line. What takes it has its name, with _ for -.

    Args:
        name: As it is typed, without the dashes before it.
        help: What it does, in a line.
        kind: Reads its value; None: it has no value, and is true where it is given.
        choices: The values that there are; none: any.
        metavar: What stands for the value in the help.
        bare: Its value where it is given without one; None: it needs one.
        is_repeated: Whether it may be given several times, and makes a list.
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
        """The name of what takes it."""
        return self.name.replace("-", "_")

    def keywords(self) -> dict[str, Any]:
        """Those of argparse's `add_argument`. What is not given is then not in what the parser finds."""
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
    """Those of the options that were given, by the names of what takes them."""
    return {each.key: getattr(options, each.key) for each in known if hasattr(options, each.key)}
