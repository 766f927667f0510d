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

from zoo.data.encodings import UTF8, Encoding
from zoo.data.labels import count_label_uses, find_untrained, warn_of_similar, warn_of_unscored
from zoo.data.option_hints import skip_hint
from zoo.data.splits import NONE, SPLITS, split_stratified
from zoo.data.tables import OnBadRow, collect_error, is_collecting, message
from zoo.errors import ConfigError, DataError, count_noun, did_you_mean, warn
from zoo.tasks.vision.data.image_io import MOST_PIXELS, Channels, ImageError, picture_error, read_header, read_picture
from zoo.tasks.vision.data.image_set import ImageSet
from zoo.tasks.vision.data.transforms import Preprocessing


@dataclass(frozen=True)
class ReaderOptions:
    """Options of reading pictures.

    Args:
        channels: 1 (grey) or 3 (red, green, blue).
        at_least: Minimum size of both sides of a JPEG that is decoded at reduced size. Default: full size.
        most_pixels: Maximum number of pixels; larger pictures are bad.
        fit: Brings pictures to the size of the net's input; those that are too long for it are bad. Default: not known.
        on_bad_row: Policy for pictures that cannot be read: an error, or left out (skip). With skip, all pictures are
            decoded once at the start, to find damaged pixels; otherwise only the beginning of each file is read.
        encoding: Encoding of tables.
    """

    channels: Channels = 3
    at_least: int | None = None
    most_pixels: int = MOST_PIXELS
    fit: Preprocessing | None = None
    on_bad_row: OnBadRow = "error"
    encoding: Encoding = UTF8

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
    split: str = ""
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
    found: list[Entry], reading: ReaderOptions, root: Path, *, may_be_none: bool = False
) -> tuple[list[Entry], bool]:
    """Returns the pictures that can be read, and whether all can be.

    Args:
        found: The pictures, in the order of the set.
        reading: How each picture is read.
        root: The folder or file that messages name.
        may_be_none: If True, all pictures may be bad ones that are skipped.
    """
    good: list[Entry] = []
    skipped: list[str] = []
    seen: dict[str, Entry] = {}
    animated: list[str] = []
    complete = True
    for entry in found:
        try:
            _check_once(entry, seen)
            if verified(entry.path, reading):
                animated.append(entry.id)
        except ImageError as error:
            if reading.on_bad_row == "skip":
                skipped.append(str(error))
                continue
            complete = False
            with collect_error():
                raise ImageError(str(error) if is_collecting() else f"{error} {skip_hint('pictures')}") from None
            continue
        good.append(entry)
    if skipped:
        warn(f"{root}: skipped {count_noun(len(skipped), 'bad picture')}. The first: {skipped[0]}")
    if found and not good and not may_be_none:
        raise DataError(f"{root}: no picture is usable." + (f" The first: {skipped[0]}" if skipped else ""))
    warn_of_animated(root, animated)
    return good, complete


def verified(path: Path, reading: ReaderOptions) -> bool:
    """Checks a file (all of it if bad ones are skipped); returns whether it has more pictures than the first."""
    header = read_header(path, most_pixels=reading.most_pixels)
    if reading.fit is not None and reading.fit.is_too_long(header.height, header.width):
        raise picture_error(path, *reading.fit.length_problem(header.height, header.width))
    if reading.on_bad_row == "skip" or is_collecting():
        read_picture(path, channels=1, at_least=1, most_pixels=reading.most_pixels)
    return header.frames


def split_up(entries: list[Entry], to_hold_out: Sequence[str], seed: int) -> list[Entry]:
    """Splits the labelled pictures that are in train, or in no split, with equal shares of each label."""
    free = [number for number, each in enumerate(entries) if each.label and each.split in ("", "train")]
    names = sorted({entries[number].label for number in free})
    index = {name: number for number, name in enumerate(names)}
    labels = np.array([index[entries[number].label] for number in free], dtype=np.int64)
    parts = split_stratified(labels, seed, held_out=[SPLITS.index(split) for split in to_hold_out])
    entries = list(entries)
    for number, part in zip(free, parts.tolist(), strict=True):
        entries[number] = replace(entries[number], split=SPLITS[part])
    return entries


def picture_set(
    entries: list[Entry], source: Path, reading: ReaderOptions, labels: Sequence[str] | None, *, checked: bool
) -> ImageSet:
    """Makes a set of pictures. If `checked`, i.e. no bad picture is missing, its labels and splits are checked."""
    names = tuple(labels) if labels is not None else tuple(sorted({each.label for each in entries} - {""}))
    index = {name: number for number, name in enumerate(names)}
    for each in entries:
        if each.label and each.label not in index:
            what = f"class {each.label!r} is not one of the {len(names)} that the model knows"
            raise DataError(message(source, each.line, None, what, did_you_mean(each.label, names)))
    if labels is None and checked:
        with collect_error():
            _check_labels(entries, source, names)
    return ImageSet(
        pixels=Decoded([each.path for each in entries], reading),
        labels=np.array([index.get(each.label, NONE) for each in entries], dtype=np.int64),
        splits=np.array([each.split for each in entries], dtype="<U5"),
        label_names=names,
        ids=[each.id for each in entries],
        channels=reading.channels,
    )


def warn_of_animated(source: Path, names: list[str]) -> None:
    if names:
        have = "has more frames or pages" if len(names) == 1 else "have more frames or pages"
        warn(f"{source}: {count_noun(len(names), 'file')} {have} than one, the first is read (such as {names[0]}).")


def _check_once(entry: Entry, seen: dict[str, Entry]) -> None:
    """Raises ImageError if a picture was found before: it could be in the training and in the test split."""
    try:
        entry.id.encode("utf-8")
    except UnicodeEncodeError:
        named = os.fsencode(entry.id).decode("utf-8", "backslashreplace")
        raise ImageError(f"{named}: the name of the file is not UTF-8. Rename it.") from None
    real = os.path.realpath(entry.path)
    if real in seen and seen[real].id != entry.id:
        what = f"it is the same file as {seen[real].id}, by a link"
        raise ImageError(message(entry.path, None, None, what, "Remove one of the two."))
    seen[real] = entry


def _check_labels(entries: list[Entry], source: Path, names: tuple[str, ...]) -> None:
    if len(names) < 2:
        what = f"all labelled pictures are of one class, {names[0]!r}" if names else "no picture has a label"
        remedy = "There must be two at least: a folder each, or an entry each in the column 'label'."
        raise DataError(message(source, None, None, what, remedy))
    index = {name: number for number, name in enumerate(names)}
    labels = np.array([index.get(each.label, NONE) for each in entries], dtype=np.int64)
    splits = np.array([SPLITS.index(each.split) if each.split else NONE for each in entries], dtype=np.int64)
    uses = count_label_uses(names, labels, splits)
    for use in find_untrained(uses):
        twin = [other for other in names if other != use.name and other.casefold() == use.name.casefold()]
        what = f"{use.name!r} is seen in {use.where} only, and never in train"
        remedy = f"Rename it to {twin[0]!r}." if twin else "Put a picture of it into train, or take it out."
        with collect_error():
            raise DataError(message(source, entries[use.first].line, None, what, remedy))
    for number, split in enumerate(SPLITS):
        if not ((splits == number) & (labels != NONE)).any():
            remedy = "Put pictures there, or label more than two of a class."
            raise DataError(message(source, None, None, f"no labelled picture is in {split!r}", remedy))
    warn_of_unscored(source, uses, ", because there are too few pictures.")
    warn_of_similar(source, uses)
