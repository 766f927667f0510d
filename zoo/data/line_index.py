"""Reads text files by lines: as a stream, or in any order through an index of where each line begins.

    lines = Lines("reviews.txt", cache)
    lines[4_000_000]

One pass over the file makes the index, which has 8 bytes a line. It is stored in the cache folder and memory-mapped, so
that a file of any size needs little memory, in any number of processes.
"""

from __future__ import annotations

import codecs
import os
import shutil
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np

from zoo.data.cache import identity
from zoo.data.compressed import open_bytes
from zoo.data.encodings import UTF8, Encoding, Fault, find_decoding_fault
from zoo.data.tables import RowError, check_is_file, message
from zoo.errors import DataError
from zoo.io import open_atomic_bytes

LONGEST = 1 << 24
"""The most bytes of a line, unless another limit is given."""
_BLOCK = 1 << 20
_OFFSET = np.dtype("<u8")


class TextLines(NamedTuple):
    """Examples that are lines of text.

    Args:
        numbers: Index of the line of each example; the others are blank, or left out as bad.
        total: Number of lines.
    """

    numbers: Sequence[int]
    total: int

    def select(self, numbers: Sequence[int]) -> TextLines:
        """Returns the lines of some of the examples."""
        return TextLines([self.numbers[number] for number in numbers], self.total)


def read_lines(path: Path, longest: int = LONGEST, encoding: Encoding = UTF8) -> Iterator[tuple[int, str | Fault]]:
    """Yields each line's number, from 1, and its text without the line end, or a `Fault` if the line is bad.

    Args:
        path: A file of text, with or without a byte order mark; decompressed if its name ends in .gz.
        longest: The most bytes of a line, in UTF-8. A longer line is a `Fault`, and is not kept in memory.
        encoding: The encoding of the file.

    Raises:
        DataError: The file cannot be read.
    """
    number = 0
    try:
        with open_bytes(path, encoding) as file:
            while raw := file.readline(longest + 2):
                number += 1
                size = len(raw)
                while not raw.endswith(b"\n") and (more := file.readline(_BLOCK)):
                    size, raw = size + len(more), raw[:longest] + (raw[-2:] + more)[-2:]
                yield number, _decode_line(number, raw, size, longest, encoding)
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror}).") from error


class Lines(Sequence[str]):
    """The lines of a text file as a sequence, read on demand. Blank lines count; line ends are removed.

    Instances can be pickled, and can be used in forked processes.

    Args:
        path: A file of text, with or without a byte order mark. A .gz file, or one in another encoding than UTF-8, is
            written into `cache` as plain UTF-8 once.
        cache: The folder for derived files, in which the index is stored.
        longest: The most bytes of a line, in UTF-8. Reading a longer line raises an error.
        encoding: The encoding of the file.

    Raises:
        DataError: The path is not a file, the file is empty, or `cache` cannot be written. Reading a line
            raises it if the line is bad, or if the file has changed.
    """

    def __init__(
        self, path: Path | str, cache: Path | str, *, longest: int = LONGEST, encoding: Encoding = UTF8
    ) -> None:
        self.path = Path(path)
        self.longest = longest
        self.encoding: Encoding = encoding
        self._file: tuple[int, BinaryIO] | None = None
        check_is_file(self.path)
        if not self.path.stat().st_size:
            raise _make_empty_error(self.path)
        folder = Path(cache) / "lines"
        try:
            is_plain = self.path.suffix.lower() != ".gz" and encoding == UTF8
            self._plain = self.path if is_plain else _write_plain_copy(self.path, folder, encoding)
            with self._plain.open("rb") as file:
                self._state = _get_state(file)
                self._starts_at = folder / f"{identity(file)}.lines"
                if not _is_complete_index(self._starts_at, self._state[0]):
                    folder.mkdir(parents=True, exist_ok=True)
                    with open_atomic_bytes(self._starts_at) as index:
                        self._write_index(file, index)
        except OSError as error:
            failed_path = error.filename or self.path
            raise DataError(f"{self.path}: its lines cannot be indexed ({failed_path}: {error.strerror}).") from error
        self._starts = np.memmap(self._starts_at, _OFFSET, mode="r")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> str:  # type: ignore[override]
        number = range(len(self))[number]
        start, end = int(self._starts[number]), int(self._starts[number + 1])
        if end - start > self.longest + 2:
            raise self._error(number, _make_length_fault(end - start, self.longest))
        margin = min(start, 1)  # also reads the end of the previous line, to check the index
        raw = self._read(start - margin, end - start + margin)
        is_complete = raw.endswith(b"\n") or number == len(self) - 1
        is_line = len(raw) == end - start + margin and is_complete and raw.find(b"\n", margin, -1) < 0
        if not is_line or (number and not raw.startswith(b"\n")):
            self._has_changed()
        text = _decode_line(number + 1, raw[margin:], end - start, self.longest, self.encoding)
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
        if _get_state(file) != self._state:
            self._has_changed()
        return os.pread(file.fileno(), count, start)  # does not move the file position, which processes share

    def _has_changed(self) -> NoReturn:
        raise DataError(f"{self.path}: the file has changed since it was indexed. Start again.")

    def _write_index(self, file: BinaryIO, index: BinaryIO) -> None:
        """Writes the offset of each line's first byte, and the size of the file."""
        file.seek(0)
        offset = len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
        file.seek(offset)
        index.write(np.array([offset], _OFFSET).tobytes())
        last_byte = b"\n"
        if offset == self._state[0]:
            raise _make_empty_error(self.path)
        while block := file.read(_BLOCK):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            index.write((ends + (offset + 1)).astype(_OFFSET).tobytes())
            offset, last_byte = offset + len(block), block[-1:]
        if last_byte != b"\n":
            index.write(np.array([offset], _OFFSET).tobytes())
        if _get_state(file) != self._state:
            self._has_changed()


def _decode_line(number: int, raw: bytes, size: int, longest: int, encoding: Encoding) -> str | Fault:
    """Decodes a line.

    Args:
        number: The number of the line, from 1.
        raw: The line in UTF-8, or the beginning of one that is too long.
        size: The bytes of the whole line.
        longest: The most bytes that it may have, without its end.
        encoding: The encoding of the file, for messages.
    """
    ending = 0 if not raw.endswith(b"\n") else 2 if raw.endswith(b"\r\n") else 1
    if size - ending > longest:
        return _make_length_fault(size - ending, longest)
    text = raw[: len(raw) - ending].decode("utf-8-sig" if number == 1 else "utf-8", "surrogateescape")
    return find_decoding_fault(text, encoding) or text


def _make_length_fault(size: int, longest: int) -> Fault:
    return Fault(f"the line has {size:,} bytes, and {longest:,} are the most", "Shorten it, or part it.")


def _make_empty_error(path: Path) -> DataError:
    return DataError(f"{path}: the file is empty.")


def _get_state(file: BinaryIO) -> tuple[int, int]:
    """Returns the size and the modification time of an open file, which differ if it has changed."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _is_complete_index(index: Path, size: int) -> bool:
    """Returns whether an index exists and ends with the size of the file."""
    try:
        with index.open("rb") as file:
            count = os.fstat(file.fileno()).st_size
            end = os.pread(file.fileno(), _OFFSET.itemsize, max(0, count - _OFFSET.itemsize))
    except FileNotFoundError:
        return False
    return count >= 2 * _OFFSET.itemsize and not count % _OFFSET.itemsize and int.from_bytes(end, "little") == size


def _write_plain_copy(path: Path, folder: Path, encoding: Encoding) -> Path:
    """Writes the text of a file into a folder, decompressed and in UTF-8, unless that was done before."""
    with path.open("rb") as file:
        plain = folder / f"{identity(file)}{'' if encoding == UTF8 else f'.{encoding}'}.txt"
    if not plain.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with open_bytes(path, encoding) as content, open_atomic_bytes(plain) as copy:
            shutil.copyfileobj(content, copy, _BLOCK)
    if not plain.stat().st_size:
        raise _make_empty_error(path)
    return plain
