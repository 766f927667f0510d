"""Files that are whole or not there, and directories that nobody else has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TextIO

from zoo.errors import ConfigError


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A text file to write; it gets its name, instead of what had it, when all is written."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", newline="", encoding="utf-8") as file:
        yield file
    os.replace(partial, path)


def write_text(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text)


def new_directory(parent: Path) -> Path:
    """Named by the time, and never shared, whatever else starts in the same second."""
    parent.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for attempt in range(1, 10_000):
        path = parent / (stamp if attempt == 1 else f"{stamp}_{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise ConfigError(f"{parent} has no free name for a run of {stamp}")
