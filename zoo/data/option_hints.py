"""Formats the names of options in messages as the command that the user ran has them.

A reader of files does not know who reads them. In training its options are written `data.unknown=skip`, and on a
checkpoint `--unknown=skip`; an option that only training has is said to be one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_command: ContextVar[Collection[str] | None] = ContextVar("command", default=None)


@contextmanager
def set_offered_options(options: Collection[str]) -> Iterator[None]:
    """Lets messages name options of a command on a checkpoint inside its context.

    Args:
        options: Names of those that it has, without the leading dashes.
    """
    token = _command.set(options)
    try:
        yield
    finally:
        _command.reset(token)


def format_option(name: str, value: object = None) -> str:
    """Returns an option of the data, and perhaps its value, as the command that the user ran has it.

    Args:
        name: Name in `data`.
        value: Value to be written. Default: the option is named alone.
    """
    offered, assigned = _command.get(), "" if value is None else f"={value}"
    dashed = name.replace("_", "-")
    if offered is None:
        return f"data.{name}{assigned}"
    return f"--{dashed}{assigned}" if is_offered(name) else f"data.{name}{assigned} in training"


def is_offered(name: str) -> bool:
    """Returns whether the command that the user ran has an option of the data."""
    offered = _command.get()
    return offered is None or name.replace("_", "-") in offered


def skip_hint(rows: str = "rows") -> str:
    """Returns a sentence that names the option for leaving out bad rows."""
    option = "on_bad_row=skip" if _command.get() is None else format_option("on_bad_row", "skip")
    return f"{option} leaves such {rows} out and counts them."
