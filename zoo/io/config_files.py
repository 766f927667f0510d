"""Reads small files from a user or a stranger, such as configurations and indexes of folders.

They are read in one piece, and refused where that would never end or take all memory: pipes, devices such as
/dev/zero, files that are too long, and YAML with aliases, of which a few lines can stand for billions of values.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import yaml

LARGEST = 1 << 18
"""The most bytes of a file that is written by hand."""
LARGEST_LIST = 1 << 30
"""The most bytes of a file that this program writes, such as one with a line for each example."""


def read_text(path: Path, largest: int = LARGEST, *, begins: bytes | None = None) -> str:
    """Reads the text of a regular file.

    Args:
        path: The file.
        largest: The most bytes that it may have.
        begins: The bytes with one of which the text has to begin, after white space; any if not given.

    Raises:
        OSError: The file cannot be read, is not a regular file, or is longer than `largest` bytes.
        ValueError: It is not UTF-8, or begins with something else.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # opening a pipe would wait for its writer
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is a device or a pipe, not a file", str(path))
        if status.st_size > largest:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, and {largest:,} are the most", str(path))
        start = file.read(1 << 12)
        if begins is not None and (not start.strip() or start.lstrip()[0] not in begins):
            raise ValueError("it begins with something else")
        return (start + file.read(largest)).decode("utf-8")


def read_json(path: Path, largest: int = LARGEST_LIST) -> Any:
    """Reads a JSON file.

    Raises:
        OSError: As for `read_text`.
        ValueError: It is not JSON.
    """
    text = read_text(path, largest, begins=b"{[")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_yaml(path: Path, largest: int = LARGEST_LIST) -> Any:
    """Reads a YAML file that this program wrote, in plain values.

    Raises:
        OSError: As for `read_text`.
        UnicodeDecodeError: It is not UTF-8.
        yaml.YAMLError: It is not YAML, or has aliases.
    """
    text = read_text(path, largest)
    try:
        return yaml.load(text, make_no_alias_loader(yaml.SafeLoader))
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


def make_no_alias_loader(loader: type[Any]) -> type[Any]:
    """Makes a subclass of a YAML loader (one written in Python) that refuses aliases, `*name`."""

    class WithoutAliases(loader):  # type: ignore[misc]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                raise yaml.composer.ComposerError(
                    None, None, "aliases (*name) are not taken; write the value out", mark
                )
            return super().compose_node(parent, index)

    return WithoutAliases


def dump_yaml(content: Any) -> str:
    """Plain values as YAML, without aliases for values that occur twice."""

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return str(yaml.dump(content, Dumper=Dumper, sort_keys=False, allow_unicode=True))
