"""Reads text files by lines: as a stream, or in any order through an index of where each line begins.

    lines = Lines("reviews.txt", cache)
    lines[4_000_000]

One pass over the file makes the index and checks that the file is UTF-8. The index has 8 bytes a line. It is stored in
the cache folder and memory-mapped, so that a file of any size needs little memory, in any number of processes.
"""

from __future__ import annotations

import codecs
import os
import shutil
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from zoo.data.cache import identity
from zoo.data.compressed import open_bytes
from zoo.data.records import NUL, Fault
from zoo.data.tables import RowError, check_is_file, message
from zoo.disk import whole_bytes
from zoo.errors import DataError

LONGEST = 1 << 24
"""The most bytes of a line, unless another limit is given."""
_BLOCK = 1 << 20
_OFFSET = np.dtype("<u8")


def read_lines(path: Path, longest: int = LONGEST) -> Iterator[tuple[int, str | Fault]]:
    """Yields each line's number, from 1, and its text without the line end, or a `Fault` if the line is bad.

    Args:
        path: A file in UTF-8, with or without a byte order mark; decompressed if its name ends in .gz.
        longest: The most bytes of a line. A longer line is a `Fault`, and is not kept in memory.

    Raises:
        DataError: The file cannot be read, or is not UTF-8.
    """
    number = 0
    try:
        with open_bytes(path) as file:
            while raw := file.readline(longest + 2):
                number += 1
                size = len(raw)
                while not raw.endswith(b"\n") and (more := file.readline(_BLOCK)):
                    size, raw = size + len(more), raw[:longest] + (raw[-2:] + more)[-2:]
                yield number, _text(path, number, raw, size, longest)
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror}).") from error


class Lines(Sequence[str]):
    """The lines of a text file as a sequence, read on demand. Blank lines count; line ends are removed.

    Instances can be pickled, and can be used in forked processes.

    Args:
        path: A file in UTF-8, with or without a byte order mark. A .gz file is decompressed into `cache` once.
        cache: The folder for derived files, in which the index is stored.
        longest: The most bytes of a line. Reading a longer line raises an error.

    Raises:
        DataError: The path is not a file, the file is empty or not UTF-8, or `cache` cannot be written. Reading a line
            raises it if the line is bad, or if the file has changed.
    """

    def __init__(self, path: Path | str, cache: Path | str, *, longest: int = LONGEST) -> None:
        self.path = Path(path)
        self.longest = longest
        self._file: tuple[int, BinaryIO] | None = None
        check_is_file(self.path)
        if not self.path.stat().st_size:
            raise _empty(self.path)
        folder = Path(cache) / "lines"
        try:
            self._plain = _decompressed(self.path, folder) if self.path.suffix.lower() == ".gz" else self.path
            with self._plain.open("rb") as file:
                self._state = _state(file)
                self._starts_at = folder / f"{identity(file)}.lines"
                if not _fits(self._starts_at, self._state[0]):
                    folder.mkdir(parents=True, exist_ok=True)
                    with whole_bytes(self._starts_at) as index:
                        self._write_index(file, index)
        except OSError as error:
            where = error.filename or self.path
            raise DataError(f"{self.path}: its lines cannot be indexed ({where}: {error.strerror}).") from error
        self._starts = np.memmap(self._starts_at, _OFFSET, mode="r")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> str:  # type: ignore[override]
        number = range(len(self))[number]
        start, end = int(self._starts[number]), int(self._starts[number + 1])
        if end - start > self.longest + 2:
            raise self._error(number, _too_long(end - start, self.longest))
        before = min(start, 1)  # also reads the end of the previous line, to check the index
        raw = self._read(start - before, end - start + before)
        ends = raw.endswith(b"\n") or number == len(self) - 1
        is_line = len(raw) == end - start + before and ends and raw.find(b"\n", before, -1) < 0
        if not is_line or (number and not raw.startswith(b"\n")):
            self._changed()
        text = _text(self.path, number + 1, raw[before:], end - start, self.longest)
        if isinstance(text, Fault):
            raise self._error(number, text)
        return text

    def __iter__(self) -> Iterator[str]:
        for number, text in read_lines(self._plain, self.longest):
            if isinstance(text, Fault):
                raise self._error(number - 1, text)
            yield text

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None, "_starts": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        try:
            self._starts = np.memmap(self._starts_at, _OFFSET, mode="r")
        except (OSError, ValueError) as error:
            raise DataError(f"{self._starts_at}: the index of {self.path} is gone ({error}). Start again.") from error

    def _error(self, number: int, fault: Fault) -> RowError:
        return RowError(message(self.path, number + 1, None, *fault))

    def _read(self, start: int, count: int) -> bytes:
        if self._file is None or self._file[0] != os.getpid():
            try:
                self._file = os.getpid(), self._plain.open("rb")
                weakref.finalize(self, self._file[1].close)
            except OSError as error:
                raise DataError(f"{self.path}: the file cannot be read any more ({error.strerror}).") from error
        file = self._file[1]
        if _state(file) != self._state:
            self._changed()
        return os.pread(file.fileno(), count, start)  # does not move the file position, which processes share

    def _changed(self) -> NoReturn:
        raise DataError(f"{self.path}: the file has changed since it was indexed. Start again.")

    def _write_index(self, file: BinaryIO, index: BinaryIO) -> None:
        """Writes the offset of each line's first byte, and the size of the file."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        file.seek(0)
        at = len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
        file.seek(at)
        index.write(np.array([at], _OFFSET).tobytes())
        lines, begun, last = 0, at, b"\n"
        if at == self._state[0]:
            raise _empty(self.path)
        while block := file.read(_BLOCK):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                self._undecodable(file, begun, lines)
            index.write((ends + (at + 1)).astype(_OFFSET).tobytes())
            at, last, lines = at + len(block), block[-1:], lines + len(ends)
            begun = at - len(block) + int(ends[-1]) + 1 if len(ends) else begun
        if decoder.getstate()[0]:
            self._undecodable(file, begun, lines)
        if last != b"\n":
            index.write(np.array([at], _OFFSET).tobytes())
        if _state(file) != self._state:
            self._changed()

    def _undecodable(self, file: BinaryIO, begun: int, lines: int) -> NoReturn:
        """Finds the line that is not UTF-8 in the part of the file from this offset on."""
        file.seek(begun)
        decoder = codecs.getincrementaldecoder("utf-8")()
        while block := file.read(_BLOCK):
            for part in block.splitlines(keepends=True):
                try:
                    decoder.decode(part)
                except UnicodeDecodeError as error:
                    raise _not_utf8(self.path, lines + 1, error) from None
                lines += part.endswith(b"\n")
        raise DataError(message(self.path, lines + 1, None, "the file ends within a character", "Save it as UTF-8."))


def _text(path: Path, number: int, raw: bytes, size: int, longest: int) -> str | Fault:
    """Decodes a line.

    Args:
        path: The file, for messages.
        number: The number of the line, from 1.
        raw: The line, or the beginning of one that is too long.
        size: The bytes of the whole line.
        longest: The most bytes that it may have, without its end.
    """
    ending = 0 if not raw.endswith(b"\n") else 2 if raw.endswith(b"\r\n") else 1
    if size - ending > longest:
        return _too_long(size - ending, longest)
    try:
        text = raw[: len(raw) - ending].decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, number, error) from None
    return NUL if "\0" in text else text


def _too_long(size: int, longest: int) -> Fault:
    return Fault(f"the line has {size:,} bytes, and {longest:,} are the most", "Shorten it, or part it.")


def _not_utf8(path: Path, line: int, error: UnicodeDecodeError) -> DataError:
    what = f"byte 0x{error.object[error.start]:02x} is not UTF-8 text"
    return DataError(message(path, line, None, what, "Save the file as UTF-8."))


def _empty(path: Path) -> DataError:
    return DataError(f"{path}: the file is empty.")


def _state(file: BinaryIO) -> tuple[int, int]:
    """The size and the modification time of an open file, which differ if it has changed."""
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def _fits(index: Path, size: int) -> bool:
    """Whether an index exists and ends with the size of the file."""
    try:
        with index.open("rb") as file:
            count = os.fstat(file.fileno()).st_size
            last = os.pread(file.fileno(), _OFFSET.itemsize, max(0, count - _OFFSET.itemsize))
    except FileNotFoundError:
        return False
    return count >= 2 * _OFFSET.itemsize and not count % _OFFSET.itemsize and int.from_bytes(last, "little") == size


def _decompressed(path: Path, folder: Path) -> Path:
    """Decompresses a .gz file into a folder, unless that was done before."""
    with path.open("rb") as file:
        plain = folder / f"{identity(file)}.txt"
    if not plain.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with open_bytes(path) as content, whole_bytes(plain) as copy:
            shutil.copyfileobj(content, copy, _BLOCK)
    if not plain.stat().st_size:
        raise _empty(path)
    return plain
