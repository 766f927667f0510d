"""What goes to a terminal: names out of files are shown there, and do not steer it."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from zoo.errors import visible

_ANY_WIDTH = 1_000_000


class _Plain(Console):
    """A console that takes every text as it stands: no markup, no colours by content, control characters as escapes."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)


def console() -> Console:
    """As wide as the terminal; what goes to a file or another program is not broken into lines."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _ANY_WIDTH
    return _Plain(highlight=False, markup=False, emoji=False, width=width)


class _Shown(io.StringIO):
    """Hands on what is written to it with control characters as escapes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(visible(text))


def shown(stream: TextIO) -> TextIO:
    """A stream for a table: on a terminal control characters are shown, in a file or a pipe they stay."""
    return _Shown(stream) if stream.isatty() else stream
