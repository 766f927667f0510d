"""Finds the pictures in folders, with their classes and splits, and accounts for all other files."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from zoo.data.folders import Walk
from zoo.data.splits import NONE, SPLITS, TRAIN
from zoo.data.tables import message
from zoo.errors import DataError, warn
from zoo.tasks.vision.data.image_io import SUFFIXES
from zoo.tasks.vision.data.image_list import Entry

_SPLIT_NAMES = {"training": "train", "valid": "val", "validation": "val", "dev": "val", "testing": "test"}


def picture_walk(root: Path) -> Walk:
    """Returns a walk that finds pictures."""
    return Walk(root, SUFFIXES, "picture")


def class_folders(walk: Walk) -> tuple[list[Entry], tuple[str, ...]]:
    """Returns the pictures of all class folders, and the splits that must be held out of `train`."""
    root = walk.root
    folders, files = walk.content(root)
    walk.loose += [walk.relative_name(each) for each in walk.select(files)]
    if not folders:
        remedy = "Put each class into a folder of its own, or list the pictures in a table (data=image_table)."
        raise DataError(message(root, None, None, "it holds no folder", remedy))
    nested = [each for each in folders if picture_walk(each).content(each)[0]]
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
        return [entry for part in folders for entry in _walk_classes(walk, part, SPLITS.index(part.name))], missing
    splits = [each.name for each in nested if each.name in SPLITS]
    if splits:
        other = next(name for name in split_of if name not in SPLITS)
        what = f"folder {splits[0]!r}, which is a split, stands beside {other!r}"
        raise DataError(message(root, None, None, what, "Have folders train, val and test alone, or classes alone."))
    return _walk_classes(walk, root, TRAIN, folders), ("val", "test")


def make_entry(root: Path, path: Path, labels: set[str]) -> Entry:
    """Returns a picture below `root`, with the label and split that the names of its folders give."""
    names = [unicodedata.normalize("NFC", name) for name in (root.name, *path.relative_to(root).parts[:-1])]
    label = next((name for name in names if name in labels), "")
    split = next((name for name in names if name in SPLITS and name not in labels), "")
    return Entry(path, str(path), label, SPLITS.index(split) if split and label else NONE)


def _walk_classes(walk: Walk, parent: Path, split: int, folders: list[Path] | None = None) -> list[Entry]:
    if folders is None:
        folders, files = walk.content(parent)
        walk.loose += [walk.relative_name(each) for each in walk.select(files)]
    entries: list[Entry] = []
    above = (os.path.realpath(parent),)
    for folder in folders:
        label = unicodedata.normalize("NFC", folder.name)  # systems encode the same name differently
        pictures = [Entry(path, walk.relative_name(path), label, split) for path in walk.files(folder, above)]
        if not pictures:
            walk.empty.append(walk.relative_name(folder))
        entries += pictures
    return entries
