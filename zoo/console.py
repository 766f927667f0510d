"""Output to a terminal, which names from files cannot steer."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from zoo.errors import visible

_ANY_WIDTH = 1_000_000


class _Verbatim(Console):
    """A console that prints texts as they are, without markup or colours, and control characters as escapes."""

    def on_broken_pipe(self) -> None:
        raise  # as other output does; rich would exit

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)


def console() -> Console:
    """A console as wide as the terminal; output to a file or another program is not wrapped."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _ANY_WIDTH
    return _Verbatim(highlight=False, markup=False, emoji=False, width=width)


class _Shown(io.StringIO):
    """Passes text on to a stream, with control characters as escapes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(visible(text))


def shown(stream: TextIO) -> TextIO:
    """A stream for a table: a terminal shows control characters as escapes, a file or a pipe gets them unchanged."""
    return _Shown(stream) if stream.isatty() else stream
