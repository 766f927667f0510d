"""Finds the files in a folder of maps that may be replaced: those whose content has the digest in the index.

A name in the index is not enough: an index from elsewhere may list files that the user has put there. Nothing is
written through links.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from zoo.errors import DataError
from zoo.io import read_json


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def find_unchanged(index: Path) -> set[str]:
    """Returns the files whose content has the digest that the index lists."""
    folder = index.parent
    listed = read_json(index).get("digests", {})
    if not isinstance(listed, dict):
        return set()
    return {
        name
        for name, expected in listed.items()
        if not _is_outside(folder, name) and (folder / name).is_file() and digest(folder / name) == expected
    }


def check_free(folder: Path, name: str, own: Collection[str]) -> None:
    """Raises a DataError if the path has a link, or is a file that is not among `own`."""
    path = folder / name
    link = next((each for each in (path, *path.parents[: len(Path(name).parts) - 1]) if each.is_symlink()), None)
    if link is not None:
        raise DataError(
            f"{link}: is a link, and maps are not written through links. Remove it, or give another folder."
        )
    if path.exists() and name not in own:
        raise DataError(
            f"{path}: does not belong to the maps, or was changed since they were written. Move it away, or give "
            "another folder."
        )


def _is_outside(folder: Path, name: str) -> bool:
    path = Path(name)
    inside = [folder / part for part in (path, *path.parents) if part != Path()]
    return path.is_absolute() or ".." in path.parts or any(each.is_symlink() for each in inside)
