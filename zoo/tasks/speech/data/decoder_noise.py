"""What the decoder of MP3 files writes to standard error by itself: caught, and reported as a fault of the file."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_MOST = 1 << 16
"""The bytes that are kept; a damaged file may have a remark for each of its frames."""


@contextmanager
def caught_noise() -> Iterator[list[str]]:
    """A context in which libraries write to a file instead of to standard error.

    Python's own output of other threads goes there too, so that it must be short.

    Yields:
        A list, to which the lines are added at the end of the context.
    """
    lines: list[str] = []
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        error = os.dup(2)
        try:
            os.dup2(kept.fileno(), 2)
            yield lines
        finally:
            os.dup2(error, 2)
            os.close(error)
            kept.seek(0)
            lines += kept.read(_MOST).decode("utf-8", "replace").splitlines()


def damage(lines: list[str]) -> str | None:
    """Returns the first error that libmpg123 has written; None if there is none, only notes and warnings."""
    errors = (line.partition("error:")[2].strip() for line in lines if "libmpg123" in line)
    return next((error for error in errors if error), None)
