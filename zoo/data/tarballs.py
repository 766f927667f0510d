"""Files in .tar.gz archives, read one after another, or unpacked."""

from __future__ import annotations

import csv
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from zoo.data.download import verify_published
from zoo.errors import DataError

_MAX_FILE_BYTES = 1 << 30
"""Bytes of a file that is unpacked."""


def iter_open_files(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yields the name and an open file for each file of an archive."""
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file


def iter_contents(archive: Path, largest: int) -> Iterator[tuple[str, bytes]]:
    """Yields the name and the content of each file of an archive.

    Args:
        archive: The archive.
        largest: The most bytes of a file; a larger one is an error.
    """
    for name, file in iter_open_files(archive):
        content = file.read(largest + 1)
        verify_published(len(content) <= largest, archive, f"{name} has more than {largest:,} bytes")
        yield name, content


@contextmanager
def translate_archive_errors(archive: Path) -> Iterator[None]:
    """Turns errors of a damaged archive, or of content that cannot be decoded, into a DataError."""
    try:
        yield
    except (tarfile.TarError, EOFError, OSError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        problem = f"{archive}: the archive is damaged or cut short ({error})"
        raise DataError(f"{problem}. Remove it, and it will be downloaded again.") from error


def extract_folder(archive: Path, inside: str, folder: Path) -> Path:
    """Unpacks a folder of an archive, completely or not at all, unless it is there; returns it.

    Args:
        archive: The archive.
        inside: The folder in it; "." for the whole archive.
        folder: Where its content goes.

    Raises:
        DataError: The archive is damaged or lacks the folder, or the folder cannot be written.
    """
    if folder.is_dir():
        return folder
    root, count = PurePosixPath(inside), 0
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as parts:
            content_folder = Path(parts) / "content"
            for name, content in _iter_folder(archive, root):
                target = content_folder / PurePosixPath(name).relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                count += 1
            verify_published(count > 0, archive, f"it has no folder {inside}")
            content_folder.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # otherwise another process was faster
            problem = f"{folder}: {archive.name} cannot be unpacked there ({error.strerror or error})"
            raise DataError(f"{problem}. Make room, or set paths.cache to another folder.") from error
    return folder


def _iter_folder(archive: Path, folder: PurePosixPath) -> Iterator[tuple[str, bytes]]:
    """Yields the name and the content of each file in a folder of an archive."""
    with translate_archive_errors(archive):
        for name, content in iter_contents(archive, _MAX_FILE_BYTES):
            path = PurePosixPath(name)
            if path.is_relative_to(folder) and ".." not in path.parts and not path.is_absolute():
                yield name, content
