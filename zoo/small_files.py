"""Small files that a user or a stranger wrote: configurations, lists of what a folder holds.

They are read in one piece, so what is read has to be a file, has to end, and must not say a thing many times over: a
pipe would be waited for without end, /dev/zero has none, and a few lines of YAML aliases stand for billions of values.
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
"""Bytes of what a person writes by hand."""
LARGEST_LIST = 1 << 30
"""Bytes of what this program writes: a line for each example, say."""


def read_text(path: Path, largest: int = LARGEST, *, begins: bytes | None = None) -> str:
    """The text of a regular file.

    Args:
        path: The file.
        largest: Bytes that are read at most.
        begins: Bytes of which the first must be one, after white space; the rest is then not looked at otherwise.

    Raises:
        OSError: it cannot be read, is no regular file, or is longer than `largest` bytes.
        ValueError: it is not UTF-8, or begins with something else.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # opening a pipe would wait for who writes it
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is a device or a pipe, not a file", str(path))
        if found.st_size > largest:
            raise OSError(errno.EFBIG, f"it has {found.st_size:,} bytes, and {largest:,} are the most", str(path))
        start = file.read(1 << 12)
        if begins is not None and (not start.strip() or start.lstrip()[0] not in begins):
            raise ValueError("it begins with something else")
        return (start + file.read(largest)).decode("utf-8")


def read_json(path: Path, largest: int = LARGEST_LIST) -> Any:
    """What a JSON file holds.

    Raises:
        OSError: as `read_text`.
        ValueError: it is not JSON.
    """
    text = read_text(path, largest, begins=b"{[")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_yaml(path: Path, largest: int = LARGEST_LIST) -> Any:
    """What a YAML file of this program holds, plain values.

    Raises:
        OSError: as `read_text`.
        UnicodeDecodeError: it is not UTF-8.
        yaml.YAMLError: it is not YAML, or has aliases.
    """
    text = read_text(path, largest)
    try:
        return yaml.load(text, without_aliases(yaml.SafeLoader))
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


def without_aliases(loader: type[Any]) -> type[Any]:
    """A loader of YAML, one in Python, that refuses `*name`: the value of `&name` once more."""

    class Plain(loader):  # type: ignore[misc]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                raise yaml.composer.ComposerError(
                    None, None, "aliases (*name) are not taken; write the value out", mark
                )
            return super().compose_node(parent, index)

    return Plain


def written_yaml(content: Any) -> str:
    """Plain values as YAML, without aliases for what stands in two places."""

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return str(yaml.dump(content, Dumper=Dumper, sort_keys=False, allow_unicode=True))
