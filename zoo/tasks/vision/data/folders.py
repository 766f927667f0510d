"""Finds the pictures in folders, with their classes and splits, and accounts for all other files."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from zoo.data.splits import SPLITS
from zoo.data.tables import message
from zoo.errors import DataError, warn
from zoo.plurals import count_noun
from zoo.tasks.vision.data.listing import Entry
from zoo.tasks.vision.data.picture import SUFFIXES

_SPLIT_NAMES = {"training": "train", "valid": "val", "validation": "val", "dev": "val", "testing": "test"}


def class_folders(walk: Walk) -> tuple[list[Entry], tuple[str, ...]]:
    """Returns the pictures of all class folders, and the splits that must be held out of `train`."""
    root = walk.root
    folders, files = walk.content(root)
    walk.loose += [walk.named(each) for each in walk.named_as_pictures(files)]
    if not folders:
        remedy = "Put each class into a folder of its own, or list the pictures in a table (data=image_table)."
        raise DataError(message(root, None, None, "it holds no folder", remedy))
    nested = [each for each in folders if Walk(each).content(each)[0]]
    split_of = {each.name: _SPLIT_NAMES.get(each.name.lower(), each.name.lower()) for each in folders}
    if nested and all(name in SPLITS for name in split_of.values()):
        for name, split in split_of.items():
            if name != split:
                what = f"folder {name!r} is not the name of a split"
                raise DataError(message(root, None, None, what, f"Rename it to {split!r}."))
        if "train" not in split_of:
            raise DataError(
                message(root, None, None, "there is no folder 'train'", "Put pictures to learn from there.")
            )
        missing = tuple(split for split in ("val", "test") if split not in split_of)
        if missing:
            warn(f"{root}: there is no folder {' and no '.join(missing)}; a fifth of train is held out for each.")
        return [entry for each in folders for entry in _in_class_folders(walk, each, each.name)], missing
    splits = [each.name for each in nested if each.name in SPLITS]
    if splits:
        other = next(name for name in split_of if name not in SPLITS)
        what = f"folder {splits[0]!r}, which is a split, stands beside {other!r}"
        raise DataError(message(root, None, None, what, "Have folders train, val and test alone, or classes alone."))
    return _in_class_folders(walk, root, "train", folders), ("val", "test")


def by_folder_names(root: Path, path: Path, labels: set[str]) -> Entry:
    """Returns a picture below `root`, with the label and split that the names of its folders give."""
    names = [unicodedata.normalize("NFC", name) for name in (root.name, *path.relative_to(root).parts[:-1])]
    label = next((name for name in names if name in labels), "")
    split = next((name for name in names if name in SPLITS and name not in labels), "test") if label else ""
    return Entry(path, str(path), label, split)


def check_folder(root: Path) -> None:
    if not root.is_dir():
        what = "this is a file, where a folder belongs" if root.exists() else "the folder does not exist"
        raise DataError(message(root, None, None, what, f"Check the path, which is taken from {Path.cwd()}."))


@dataclass
class Walk:
    """Walks through folders in alphabetical order, and records what it leaves out."""

    root: Path
    hidden: int = 0
    loose: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    others: dict[str, list[str]] = field(default_factory=dict)
    """Files that are not pictures, by the ending of their names."""

    def content(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """Returns the folders and the files in a folder, without hidden ones."""
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            remedy = "Check its permissions, or move it away."
            raise DataError(
                message(folder, None, None, f"the folder cannot be read ({error.strerror})", remedy)
            ) from None
        visible = [folder / entry.name for entry in entries if not entry.name.startswith(".")]
        self.hidden += len(entries) - len(visible)
        folders = [path for path in visible if os.path.isdir(path)]  # Path.is_dir() raises for a link to itself
        inside = set(folders)
        return folders, [path for path in visible if path not in inside]

    def pictures(self, folder: Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
        """Yields every picture below a folder. Links are followed, unless to a folder above or one visited before.

        Folders that link to each other would otherwise be visited in every order.
        """
        seen, waiting = set(above), [folder]
        while waiting:
            here = waiting.pop()
            real = os.path.realpath(here)
            if real in seen:
                is_above = Path(os.path.realpath(here.parent)).is_relative_to(real)
                (self.loops if is_above else self.again).append(self.named(here))
                continue
            seen.add(real)
            folders, files = self.content(here)
            yield from self.named_as_pictures(files)
            waiting += reversed(folders)

    def named_as_pictures(self, files: list[Path]) -> Iterator[Path]:
        for path in files:
            if path.suffix.lower() in SUFFIXES:
                yield path
            else:
                self.others.setdefault(path.suffix.lower() or "without an ending", []).append(self.named(path))

    def named(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def report(self) -> None:
        """Gives one warning that counts what was left out."""
        parts = []
        if self.others:
            count = sum(map(len, self.others.values()))
            kinds = ", ".join(f"{len(names)} {kind}" for kind, names in sorted(self.others.items()))
            first = min(names[0] for names in self.others.values())
            parts.append(f"{count_noun(count, 'file')} not named as pictures ({kinds}; the first: {first})")
        if self.hidden:
            parts.append(f"{count_noun(self.hidden, 'hidden file or folder', 'hidden files and folders')}")
        if self.loose:
            parts.append(
                f"{count_noun(len(self.loose), 'picture')} outside of the class folders (the first: {self.loose[0]})"
            )
        if self.loops:
            parts.append(f"{count_noun(len(self.loops), 'link')} to a folder above (the first: {self.loops[0]})")
        if self.again:
            parts.append(f"{count_noun(len(self.again), 'link')} to a folder seen before (the first: {self.again[0]})")
        if self.empty:
            parts.append(
                f"{count_noun(len(self.empty), 'class folder')} without a picture (the first: {self.empty[0]})"
            )
        if parts:
            warn(f"{self.root}: left out {', '.join(parts)}.")


def _in_class_folders(walk: Walk, parent: Path, split: str, folders: list[Path] | None = None) -> list[Entry]:
    if folders is None:
        folders, files = walk.content(parent)
        walk.loose += [walk.named(each) for each in walk.named_as_pictures(files)]
    entries: list[Entry] = []
    above = (os.path.realpath(parent),)
    for folder in folders:
        label = unicodedata.normalize("NFC", folder.name)  # systems encode the same name differently
        pictures = [Entry(path, walk.named(path), label, split) for path in walk.pictures(folder, above)]
        if not pictures:
            walk.empty.append(walk.named(folder))
        entries += pictures
    return entries
