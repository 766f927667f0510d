"""How messages name options: those of the command that the user ran.

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
    """A context in which messages name options of a command on a checkpoint.

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
    known, assigned = _command.get(), "" if value is None else f"={value}"
    dashed = name.replace("_", "-")
    if known is None:
        return f"data.{name}{assigned}"
    return f"--{dashed}{assigned}" if is_offered(name) else f"data.{name}{assigned} in training"


def is_offered(name: str) -> bool:
    """Whether the command that the user ran has an option of the data."""
    known = _command.get()
    return known is None or name.replace("_", "-") in known


def skip_hint(rows: str = "rows") -> str:
    """Returns a sentence that names the option for leaving out bad rows."""
    said = "on_bad_row=skip" if _command.get() is None else format_option("on_bad_row", "skip")
    return f"{said} leaves such {rows} out and counts them."
