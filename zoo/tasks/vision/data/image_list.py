"""Checks and splits the pictures that were found, and makes a set of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from zoo.data.records import Record, check_labels
from zoo.data.splits import NONE, SPLITS, TRAIN, split_stratified
from zoo.data.tables import BadRows, TableOptions, collect_error, is_collecting, message
from zoo.errors import ConfigError, DataError, count_noun, did_you_mean, warn
from zoo.tasks.vision.data.image_io import MOST_PIXELS, Channels, ImageError, picture_error, read_header, read_picture
from zoo.tasks.vision.data.image_set import ImageSet
from zoo.tasks.vision.data.transforms import Preprocessing


@dataclass(frozen=True)
class ReaderOptions(TableOptions):
    """Options of reading pictures.

    Args:
        channels: 1 (grey) or 3 (red, green, blue).
        at_least: Minimum size of both sides of a JPEG that is decoded at reduced size. Default: full size.
        most_pixels: Maximum number of pixels; larger pictures are bad.
        fit: Brings pictures to the size of the net's input; those that are too long for it are bad. Default: not known.

    With `on_bad_row="skip"` all pictures are decoded once at the start, to find damaged pixels; otherwise only the
    beginning of each file is read.
    """

    channels: Channels = 3
    at_least: int | None = None
    most_pixels: int = MOST_PIXELS
    fit: Preprocessing | None = None

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise ConfigError(f"data.channels={self.channels!r}: write 1 (grey) or 3 (red, green, blue)")
        if self.most_pixels < 1:
            raise ConfigError(f"data.most_pixels={self.most_pixels}: write a whole number from 1")
        if self.on_bad_row not in ("error", "skip"):
            raise ConfigError(f"data.on_bad_row={self.on_bad_row!r}: write error or skip")


@dataclass(frozen=True, slots=True)
class Entry:
    """A picture that was found, with its label and split, and its line if it is in a table."""

    path: Path
    id: str
    label: str = ""
    split: int = NONE
    line: int | None = None


class Decoded(Sequence[UInt8[Tensor, "c h w"]]):
    """Pictures that are decoded on access.

    Args:
        paths: Absolute paths, or paths relative to `root`. Strings take less memory than `Path`.
        reading: How each picture is read.
        root: The folder of relative paths.
    """

    def __init__(self, paths: Sequence[Path | str], reading: ReaderOptions, root: Path = Path()) -> None:
        self.paths = paths
        self.reading = reading
        self.root = root

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: Any) -> Any:
        path, how = self.root / self.paths[number], self.reading
        return read_picture(path, channels=how.channels, at_least=how.at_least, most_pixels=how.most_pixels)


def usable(
    entries: list[Entry], reading: ReaderOptions, root: Path, *, may_be_none: bool = False
) -> tuple[list[Entry], bool]:
    """Returns the pictures that can be read, and whether all can be.

    Args:
        entries: The pictures, in the order of the set.
        reading: How each picture is read.
        root: The folder or file that messages name.
        may_be_none: If True, all pictures may be bad ones that are skipped.
    """
    bad, good = BadRows(root, reading.on_bad_row, "picture", "pictures"), list[Entry]()
    first: dict[str, Entry] = {}
    animated: list[str] = []
    for entry in entries:
        try:
            _check_once(entry, first)
            if verify(entry.path, reading):
                animated.append(entry.id)
            good.append(entry)
        except ImageError as error:
            bad.add(error)
    bad.warn()
    if entries and not good and not may_be_none:
        raise DataError(f"{root}: no picture is usable." + (f" The first: {bad.first}" if bad.first else ""))
    warn_of_animated(root, animated)
    return good, not bad.listed


class TablePictures:
    """The pictures that a table names. Each file is checked once.

    Args:
        reading: How each picture is read.
        folder: The folder that names begin in.
        table: The table.
    """

    def __init__(self, reading: ReaderOptions, folder: Path | None, table: Path) -> None:
        self.reading = reading
        self.table = table
        self.folder = folder or table.parent
        self._errors: dict[str, ImageError | None] = {}
        self._animated: list[str] = []

    def check(self, record: Record, role: str = "image") -> tuple[Path, str]:
        """Returns the path of a record's picture and its real path, by which a picture of two names is known.

        Raises:
            RowError: It cannot be read.
        """
        name = record[role]
        path = self.folder / name
        real = os.path.realpath(path)
        if not os.path.lexists(path):
            where = "the folder of the table" if self.folder == self.table.parent else str(self.folder)
            remedy = "Write / between folders." if "\\" in name else f"Write the path from {where}."
            raise record.error(role, f"there is no file {path}", remedy)
        if real not in self._errors:
            try:
                self._animated += [name] if verify(path, self.reading) else []
                self._errors[real] = None
            except ImageError as error:
                self._errors[real] = error
        if (problem := self._errors[real]) is not None:
            raise record.error(role, f"{name!r}: {problem.what}", problem.remedy)
        return path, real

    def report(self) -> None:
        """Warns of pictures with more than one frame."""
        warn_of_animated(self.table, self._animated)


def verify(path: Path, reading: ReaderOptions) -> bool:
    """Checks a file (all of it if bad ones are skipped); returns whether it has more pictures than the first."""
    header = read_header(path, most_pixels=reading.most_pixels)
    if reading.fit is not None and reading.fit.is_too_long(header.height, header.width):
        raise picture_error(path, *reading.fit.length_problem(header.height, header.width))
    if reading.on_bad_row == "skip" or is_collecting():
        read_picture(path, channels=1, at_least=1, most_pixels=reading.most_pixels)
    return header.frames


def split_up(entries: list[Entry], to_hold_out: Sequence[str], seed: int) -> list[Entry]:
    """Splits the labelled pictures that are in train, or in no split, with equal shares of each label."""
    free = [number for number, entry in enumerate(entries) if entry.label and entry.split in (NONE, TRAIN)]
    labels = np.unique([entries[number].label for number in free], return_inverse=True)[1].reshape(-1)
    parts = split_stratified(labels, seed, held_out=[SPLITS.index(split) for split in to_hold_out])
    entries = list(entries)
    for number, part in zip(free, parts.tolist(), strict=True):
        entries[number] = replace(entries[number], split=part)
    return entries


def picture_set(
    entries: list[Entry], source: Path, reading: ReaderOptions, labels: Sequence[str] | None, *, checked: bool
) -> ImageSet:
    """Makes a set of pictures. If `checked`, i.e. no bad picture is missing, its labels and splits are checked."""
    names = tuple(labels) if labels is not None else tuple(sorted({entry.label for entry in entries} - {""}))
    index = {name: number for number, name in enumerate(names)}
    for entry in entries:
        if entry.label and entry.label not in index:
            problem = f"class {entry.label!r} is not one of the {len(names)} that the model knows"
            raise DataError(message(source, entry.line, None, problem, did_you_mean(entry.label, names)))
    numbers = np.array([index.get(entry.label, NONE) for entry in entries], dtype=np.int64)
    splits = np.array([entry.split for entry in entries], dtype=np.int64)
    if labels is None and checked:
        with collect_error():
            locate = lambda number: (source, entries[number].line)  # noqa: E731
            check_labels(source, "picture", names, numbers, splits, locate=locate, column="label")
    return ImageSet(
        pixels=Decoded([entry.path for entry in entries], reading),
        labels=numbers,
        splits=np.array([*SPLITS, ""], dtype="<U5")[splits],
        label_names=names,
        ids=[entry.id for entry in entries],
        channels=reading.channels,
    )


def warn_of_animated(source: Path, names: list[str]) -> None:
    if names:
        have = "has more frames or pages" if len(names) == 1 else "have more frames or pages"
        warn(f"{source}: {count_noun(len(names), 'file')} {have} than one, the first is read (such as {names[0]}).")


def _check_once(entry: Entry, first: dict[str, Entry]) -> None:
    """Raises ImageError if a picture was found before: it could be in the training and in the test split."""
    try:
        entry.id.encode("utf-8")
    except UnicodeEncodeError:
        named = os.fsencode(entry.id).decode("utf-8", "backslashreplace")
        raise ImageError(f"{named}: the name of the file is not UTF-8. Rename it.") from None
    real = os.path.realpath(entry.path)
    if real in first and first[real].id != entry.id:
        what = f"it is the same file as {first[real].id}, by a link"
        raise ImageError(message(entry.path, None, None, what, "Remove one of the two."))
    first[real] = entry
