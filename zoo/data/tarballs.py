"""Files in .tar.gz archives, read one after another without unpacking the archive."""

from __future__ import annotations

import csv
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from zoo.data.download import expect
from zoo.errors import DataError


def opened_files(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yields the name and an open file for each file of an archive."""
    with tarfile.open(archive, "r:gz") as opened:
        for member in opened:
            file = opened.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file


def contents(archive: Path, largest: int) -> Iterator[tuple[str, bytes]]:
    """Yields the name and the content of each file of an archive.

    Args:
        archive: The archive.
        largest: The most bytes of a file; a larger one is an error.
    """
    for name, file in opened_files(archive):
        content = file.read(largest + 1)
        expect(len(content) <= largest, archive, f"{name} has more than {largest:,} bytes")
        yield name, content


@contextmanager
def damage_named(archive: Path) -> Iterator[None]:
    """A context in which errors of a damaged archive, or of content that cannot be decoded, become a DataError."""
    try:
        yield
    except (tarfile.TarError, EOFError, OSError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        what = f"{archive}: the archive is damaged or cut short ({error})"
        raise DataError(f"{what}. Remove it, and it will be downloaded again.") from error
