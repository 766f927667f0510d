"""Reads compressed files, and refuses those that decompress to far more than they should."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import IO

from zoo.data.encodings import UTF8, Encoding, transcode
from zoo.errors import DataError

FREE, RATIO = 1 << 26, 200
"""A file may decompress to `FREE` bytes, or to `RATIO` times its size if that is more; gzip reaches 1032 times."""


def open_bytes(path: Path, encoding: Encoding = UTF8) -> IO[bytes]:
    """Opens a file, decompressed if its name ends in .gz.

    Args:
        path: The file.
        encoding: Its encoding; one other than UTF-8 is read as UTF-8.

    Raises:
        DataError: While reading: the file is damaged, or decompresses to far more than it should.
    """
    file: IO[bytes] = io.BufferedReader(_Bounded(path)) if path.suffix.lower() == ".gz" else path.open("rb")
    return transcode(file, encoding, path)


class _Bounded(io.RawIOBase):
    """The content of a .gz file, up to a limit."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = gzip.GzipFile(path, "rb")
        self.left = max(FREE, RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            count = self.file.readinto(buffer)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{self.path}: the compressed file is damaged or cut short ({error}).") from error
        self.left -= count
        if self.left < 0:
            raise DataError(
                f"{self.path}: it decompresses to more than {RATIO} times its size, which no table does. "
                "If it is yours, decompress it yourself and name that file."
            )
        return count

    def close(self) -> None:
        self.file.close()
        super().close()
