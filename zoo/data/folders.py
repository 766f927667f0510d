"""Walks through folders of the user's own files, and accounts for all that it leaves out."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zoo.data.tables import message
from zoo.errors import DataError, count_noun, warn


def check_is_folder(path: Path) -> None:
    """Refuses a path that leads to no folder."""
    if not path.is_dir():
        problem = "this is a file, where a folder belongs" if path.exists() else "the folder does not exist"
        raise DataError(message(path, None, None, problem, f"Check the path, which is taken from {Path.cwd()}."))


@dataclass
class Walk:
    """Finds files by the endings of their names, folder by folder, each in alphabetical order.

    Args:
        root: The folder, for names in messages.
        endings: Endings of the names of files that are found, in lower case.
        noun: Word for such a file.
    """

    root: Path
    endings: Collection[str]
    noun: str
    hidden: int = 0
    loose: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    others: dict[str, list[str]] = field(default_factory=dict)
    """Other files, by the ending of their names."""

    def content(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """Returns the folders and the files in a folder, without hidden ones."""
        try:
            with os.scandir(folder) as iterator:
                entries = sorted(iterator, key=lambda entry: entry.name)
        except OSError as error:
            remedy = "Check its permissions, or move it away."
            raise DataError(
                message(folder, None, None, f"the folder cannot be read ({error.strerror})", remedy)
            ) from None
        visible = [folder / entry.name for entry in entries if not entry.name.startswith(".")]
        self.hidden += len(entries) - len(visible)
        folders = [path for path in visible if os.path.isdir(path)]  # Path.is_dir() raises for a link to itself
        folder_set = set(folders)
        return folders, [path for path in visible if path not in folder_set]

    def files(self, folder: Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
        """Yields every such file below a folder. Links are followed, unless to a folder above or one visited before.

        Folders that link to each other would otherwise be visited in every order.
        """
        visited, stack = set(above), [folder]
        while stack:
            current = stack.pop()
            real_path = os.path.realpath(current)
            if real_path in visited:
                is_above = Path(os.path.realpath(current.parent)).is_relative_to(real_path)
                (self.loops if is_above else self.again).append(self.relative_name(current))
                continue
            visited.add(real_path)
            folders, files = self.content(current)
            yield from self.select(files)
            stack += reversed(folders)

    def select(self, files: Sequence[Path]) -> Iterator[Path]:
        """Yields the files with one of the endings, and records the others."""
        for path in files:
            if path.suffix.lower() in self.endings:
                yield path
            else:
                self.others.setdefault(path.suffix.lower() or "without an ending", []).append(self.relative_name(path))

    def relative_name(self, path: Path) -> str:
        """Returns the name of a file or folder, from the root on."""
        return path.relative_to(self.root).as_posix()

    def report(self) -> None:
        """Gives one warning that counts what was left out."""
        parts = []
        if self.others:
            count = sum(map(len, self.others.values()))
            kinds = ", ".join(f"{len(names)} {kind}" for kind, names in sorted(self.others.items()))
            first = min(names[0] for names in self.others.values())
            parts.append(f"{count_noun(count, 'file')} not named as {self.noun}s ({kinds}; the first: {first})")
        if self.hidden:
            parts.append(f"{count_noun(self.hidden, 'hidden file or folder', 'hidden files and folders')}")
        if self.loose:
            parts.append(
                f"{count_noun(len(self.loose), self.noun)} outside of the class folders (the first: {self.loose[0]})"
            )
        if self.loops:
            parts.append(f"{count_noun(len(self.loops), 'link')} to a folder above (the first: {self.loops[0]})")
        if self.again:
            parts.append(f"{count_noun(len(self.again), 'link')} to a folder seen before (the first: {self.again[0]})")
        if self.empty:
            parts.append(
                f"{count_noun(len(self.empty), 'class folder')} without a {self.noun} (the first: {self.empty[0]})"
            )
        if parts:
            warn(f"{self.root}: left out {', '.join(parts)}.")
