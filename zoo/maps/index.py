"""The index of a folder of maps, written as a stream: labels and examples are in temporary files until the end."""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

FORMAT = 1
KIND = "attention maps"
_REMEMBERED = 64
"""Number of lists of labels that are recognised when another example has them."""


class IndexFile:
    """Collects the parts of the index, from which `close` writes

        {"kind", "format", ..., "labels": [["the", "cat"], ...], "examples": [{"id", "about", "maps": [...]}, ...]}

    with one line for each list of labels and for each example. A map refers to its labels by their index in `labels`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open = ExitStack()
        self._parts = [path.with_name(f"{path.name}.{name}.part") for name in ("labels", "examples")]
        self._labels, self._examples = (
            self._open.enter_context(part.open("w+", encoding="utf-8")) for part in self._parts
        )
        self._count = 0
        self._known: OrderedDict[bytes, int] = OrderedDict()

    def number_of(self, labels: Sequence[str]) -> int:
        """Returns the index of a list of labels. A list that examples share, such as a graph's nodes, is kept once."""
        line = _line([str(label) for label in labels])
        digest = hashlib.blake2b(line.encode(), digest_size=16).digest()
        if digest not in self._known:
            self._labels.write(line + "\n")
            self._known[digest] = self._count
            self._count += 1
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(digest)
        return self._known[digest]

    def add(self, example: Mapping[str, Any]) -> None:
        self._examples.write(_line(example) + "\n")

    def close(self, facts: Mapping[str, Any]) -> None:
        """Writes the index, flushes it to the disk, and removes the temporary files."""
        with open(self.path, "w", encoding="utf-8") as file:
            file.writelines(self._pieces({"kind": KIND, "format": FORMAT, **facts}))
            file.flush()
            os.fsync(file.fileno())
        self.abandon()
        for part in self._parts:
            part.unlink()

    def abandon(self) -> None:
        """Closes the temporary files without removing them."""
        self._open.close()

    def _pieces(self, facts: Mapping[str, Any]) -> Iterator[str]:
        yield "{\n"
        for key, value in facts.items():
            yield f"{_line(key)}: {_line(value)},\n"
        for key, spool, end in (("labels", self._labels, "],"), ("examples", self._examples, "]")):
            yield f'"{key}": ['
            spool.seek(0)
            for number, line in enumerate(spool):
                yield f"{',' if number else ''}\n  {line.rstrip()}"
            yield f"\n{end}\n"
        yield "}\n"


def _line(content: Any) -> str:
    return json.dumps(content)
