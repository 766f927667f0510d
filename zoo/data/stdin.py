"""Reads input from pipes: `zoo predict CKPT <(zcat histories.csv.gz)`.

A pipe can be read once, and a table is read more than once, its header first. The content of a pipe is therefore copied
to a temporary file, which is removed when the command ends.
"""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from zoo.data.csv_recovery import NUL
from zoo.data.line_index import LONGEST
from zoo.errors import DataError, ZooError
from zoo.io import find_descriptor

_PROBE_BYTES = 1 << 16
"""The bytes that are examined to find the kind of a file."""
_COLUMNS = (
    *("id", "label", "text", "source", "target", "path", "image", "caption", "user", "item", "timestamp"),
    *("premise", "hypothesis", "context", "question", "answer"),
)
"""Columns of the tables that are described in data/README.md."""
_MAX_WORDS = 3
"""Maximum number of words of a column's name, in a header without any of these columns."""
_SENTENCE_ENDS = (".", "!", "?", ";", ":")
"""A column's name does not end like a sentence."""


_originals: ContextVar[Mapping[Path, Path]] = ContextVar("originals", default=MappingProxyType({}))
"""Copies of pipes -> the pipes."""


@contextmanager
def materialize_pipes(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Replaces pipes, and open files such as `/dev/stdin`, by files inside its context; other paths stay.

    A name without an ending (`/dev/fd/63`) is given one that fits the content. Errors name the pipe.
    """
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        copies = [_copy_to_file(path, Path(folder) / f"pipe-{number}") for number, path in enumerate(paths)]
        token = _originals.set({file: path for file, path in zip(copies, paths, strict=True) if file != path})
        try:
            yield copies
        except ZooError as error:
            message = str(error)
            for file, path in zip(copies, paths, strict=True):
                if file != path:
                    message = message.replace(str(file), str(path))
            if message == str(error):
                raise
            raise type(error)(message) from error
        finally:
            _originals.reset(token)


def original_path(path: Path) -> Path:
    """Returns the pipe that a file is a copy of, or the path itself: examples are named after what the user gave."""
    return _originals.get().get(path, path)


def iter_arriving_lines(stream: BinaryIO) -> Iterator[list[str]]:
    """Yields the lines of a stream in parts: those that have arrived.

    Raises:
        DataError: A line is not UTF-8, has NUL characters, or is too long.
    """
    read, tail, number = getattr(stream, "read1", stream.read), b"", 0
    while True:
        block = read(_PROBE_BYTES)
        *lines, tail = (tail + block).split(b"\n")
        if not block:
            lines, tail = [tail] if tail else [], b""
        if len(tail) > LONGEST:
            raise DataError(f"standard input, line {number + len(lines) + 1}: more than {LONGEST:,} bytes. Shorten it.")
        texts = []
        for line in lines:
            number += 1
            texts.append(_decode(line, number))
        if texts:
            yield texts
        if not block:
            return


def _decode(line: bytes, number: int) -> str:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r")
    except UnicodeDecodeError as error:
        problem = f"byte 0x{line[error.start]:02x} is not UTF-8 text"
        raise DataError(f"standard input, line {number}: {problem}. Convert it to UTF-8.") from None
    if "\0" in text:
        raise DataError(f"standard input, line {number}: {NUL.what}. {NUL.remedy}")
    return text


def _copy_to_file(path: Path, folder: Path) -> Path:
    try:
        mode = path.stat().st_mode
    except OSError:
        return path  # the reader of the file reports what is wrong
    if not (stat.S_ISFIFO(mode) or (stat.S_ISREG(mode) and find_descriptor(path) is not None)):
        return path
    folder.mkdir()
    try:
        with path.open("rb") as pipe:
            start = pipe.read(_PROBE_BYTES)
            file = folder / (path.name if path.suffix else f"{path.name}{_guess_suffix(start)}")
            with file.open("wb") as copy:
                copy.write(start)
                shutil.copyfileobj(pipe, copy)
    except OSError as error:
        raise DataError(f"{path}: the pipe cannot be read, or kept in {folder} ({error.strerror})") from error
    return file


def _guess_suffix(start: bytes) -> str:
    if start.startswith(b"PAR1"):
        return ".parquet"
    if start.startswith(b"\x1f\x8b"):
        return ".csv.gz"
    if b"\0" in start:
        return ""  # a picture, say, which is known by its content
    if start.lstrip().startswith(b"{"):
        return ".jsonl"
    header = start.partition(b"\n")[0].decode("utf-8-sig", "replace").strip()
    ending = ".tsv" if header.count("\t") > header.count(",") else ".csv"
    return ending if _is_header(header, "\t" if ending == ".tsv" else ",") else ".txt"


def _is_header(line: str, delimiter: str) -> bool:
    """Returns whether a line names columns, and is not the first one of a text."""
    cells = [cell.strip().strip('"') for cell in line.split(delimiter)]
    if any(cell.lower() in _COLUMNS for cell in cells):
        return True
    return len(cells) > 1 and all(
        0 < len(cell.split()) <= _MAX_WORDS and not cell.endswith(_SENTENCE_ENDS) for cell in cells
    )
