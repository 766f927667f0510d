"""Writes a safetensors file array by array; the library itself needs all arrays in memory.

The format: eight bytes with the length of the header; the header in JSON, name -> dtype, shape, offsets; the arrays
without gaps.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import torch
from jaxtyping import Shaped
from torch import Tensor

from zoo.errors import DataError

DTYPES = {
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.bool: "BOOL",
}
_HEADER_LIMIT = 100_000_000  # the library refuses a longer one
_CHUNK = 1 << 20


class TensorFile:
    """Collects arrays in temporary files next to `path`, which `close` joins to one file.

    There is one temporary file for each element size. They are joined by descending size, so that each array begins at
    a multiple of its element size, as readers require. The entries of the header are in a temporary file too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open = ExitStack()
        self._entries = self._open.enter_context(self._part("entries").open("w+", encoding="utf-8"))
        self._streams: dict[int, BinaryIO] = {}
        self._header_bytes = 0

    def add(self, name: str, tensor: Shaped[Tensor, "..."]) -> None:
        size = tensor.element_size()
        if size not in self._streams:
            self._streams[size] = self._open.enter_context(self._part(str(size)).open("w+b"))
        stream = self._streams[size]
        start = stream.tell()
        stream.write(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        entry = [name, DTYPES[tensor.dtype], list(tensor.shape), size, start, stream.tell()]
        self._header_bytes += len(json.dumps(entry)) + 60  # for the names of the fields, and longer numbers
        if self._header_bytes > _HEADER_LIMIT:
            raise DataError(f"{self.path}: too many arrays for one file; write fewer examples to a folder")
        self._entries.write(json.dumps(entry) + "\n")

    def close(self) -> None:
        """Writes the file, flushes it to the disk, and removes the temporary files."""
        sizes = sorted(self._streams, reverse=True)
        shifts, total = {}, 0
        for size in sizes:
            shifts[size] = total
            total += self._streams[size].tell()
        with open(self.path, "wb") as file:
            file.write(bytes(8))
            for piece in self._header(shifts):
                file.write(piece.encode())
            file.write(b" " * (-file.tell() % 8))
            length = file.tell() - 8
            for size in sizes:
                stream = self._streams[size]
                stream.seek(0)
                shutil.copyfileobj(stream, file, _CHUNK)
                stream.close()
                self._part(str(size)).unlink()
            file.seek(0)
            file.write(length.to_bytes(8, "little"))
            file.flush()
            os.fsync(file.fileno())
        self.abandon()
        self._part("entries").unlink()

    def abandon(self) -> None:
        """Closes the temporary files without removing them."""
        self._open.close()

    def _header(self, shifts: dict[int, int]) -> Iterator[str]:
        yield "{"
        self._entries.seek(0)
        for number, line in enumerate(self._entries):
            name, dtype, shape, size, start, stop = json.loads(line)
            offsets = [start + shifts[size], stop + shifts[size]]
            value = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
            yield f"{', ' if number else ''}{json.dumps(name)}: {json.dumps(value)}"
        yield "}"

    def _part(self, name: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{name}.part")


def storable(weights: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Converts weights to the dtype in which they are stored: fp64 to fp32; others stay."""
    return weights.float() if weights.dtype == torch.float64 else weights
