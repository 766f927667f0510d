"""Prints to the terminal safely: control characters are escaped, and errors of writing name the stream."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from zoo.errors import escape_control

_ANY_WIDTH = 1_000_000


class _PlainConsole(Console):
    """A console that prints texts as they are, without markup or colors, and control characters as escapes."""

    def on_broken_pipe(self) -> None:
        raise  # as other output does; rich would exit

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escape_control(text), **options)


def make_console() -> Console:
    """Returns a console as wide as the terminal; output to a file or another program is not wrapped."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _ANY_WIDTH
    return _PlainConsole(highlight=False, markup=False, emoji=False, width=width)


class _SanitizedStream(io.StringIO):
    """Passes text on to a stream, with control characters as escapes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(escape_control(text))


def sanitize(stream: TextIO) -> TextIO:
    """Returns a stream for a table: a terminal shows control characters as escapes.

    A file or a pipe gets them unchanged.
    """
    return _SanitizedStream(stream) if stream.isatty() else stream


@contextmanager
def name_streams() -> Iterator[None]:
    """Names standard output and standard error as the file of errors in writing to them, inside its context."""
    streams = sys.stdout, sys.stderr
    names = ("standard output", "standard error")
    sys.stdout, sys.stderr = (_name_stream(*pair) for pair in zip(streams, names, strict=True))
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # what it still holds would raise again, when Python ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        sys.stdout, sys.stderr = streams


def _name_stream(stream: Any, name: str) -> TextIO:
    """Returns a stream whose errors name it. A closed one cannot be written; one without a file is returned itself."""
    if stream is None:
        read_only = io.FileIO(os.open(os.devnull, os.O_RDONLY), "w", closefd=False)  # the number stays taken
        return io.TextIOWrapper(io.BufferedWriter(_NamedFile(read_only, name)), encoding="utf-8")
    binary = getattr(stream, "buffer", None)
    raw = getattr(binary, "raw", binary)
    if not isinstance(raw, io.FileIO):
        return stream  # type: ignore[no-any-return]
    stream.flush()
    named_file: Any = _NamedFile(raw, name)
    return io.TextIOWrapper(
        named_file if raw is binary else io.BufferedWriter(named_file),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _NamedFile(io.RawIOBase):
    """An open file whose errors of writing have a name."""

    def __init__(self, file: io.FileIO, name: str) -> None:
        self._file = file
        self._name = name

    def write(self, content: Any) -> int:
        try:
            return self._file.write(content)
        except OSError as error:
            error.filename = self._name
            raise

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._file.isatty()

    def fileno(self) -> int:
        return self._file.fileno()
