"""Reads the user's own pictures from folders or from a table of paths. `data/README.md` describes the formats."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from zoo.data.splits import SPLITS
from zoo.data.stdin import original_path
from zoo.data.tables import Row, Table, message, read_table
from zoo.data.unknown_labels import UnknownLabels, read_label
from zoo.errors import DataError, join_names, warn
from zoo.tasks.vision.data.image_folder import by_folder_names, check_folder, class_folders, picture_walk
from zoo.tasks.vision.data.image_io import ImageError
from zoo.tasks.vision.data.image_list import (
    Entry,
    ReaderOptions,
    picture_set,
    split_up,
    usable,
    verified,
    warn_of_animated,
)
from zoo.tasks.vision.data.image_set import ImageSet

_TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


def read_image_folder(
    root: Path | str, reading: ReaderOptions, *, split_seed: int = 0, labels: Sequence[str] | None = None
) -> ImageSet:
    """Reads `root/<class>/...` or `root/{train,val,test}/<class>/...`; a `UserWarning` counts the files left out.

    Args:
        root: The folder. The name of a class folder is the label; it may have folders of its own.
        reading: How each picture is read.
        split_seed: Seed of the split if `root` has no folders of splits: the pictures of each class are shuffled and
            split 60/20/20. If only val or test is missing, a fifth of each class in train is held out for it.
        labels: Labels of a trained model, in its order. Other class folders are then an error.

    Raises:
        DataError: The pictures are not as described. The message names the folder or file, and a remedy.
    """
    root = Path(root)
    check_folder(root)
    walk = picture_walk(root)
    found, to_hold_out = class_folders(walk)
    walk.report()
    good, complete = usable(found, reading, root)
    entries = split_up(good, to_hold_out, split_seed)
    return picture_set(entries, root, reading, labels, checked=complete)


def read_image_table(
    table: Path | str, reading: ReaderOptions, *, split_seed: int = 0, labels: Sequence[str] | None = None
) -> ImageSet:
    """Reads a table of pictures; a `UserWarning` names the rows and columns that are not used.

    Args:
        table: File with the columns `path` (absolute, or relative to the folder of the table), `label` (empty if
            unknown) and optionally `split` (train, val, test or empty).
        reading: How each picture is read.
        split_seed: Seed of the split if there is no column `split`: the pictures of each label are shuffled and split
            60/20/20.
        labels: Labels of a trained model, in its order. Other labels are then an error, and the column may be missing.

    Raises:
        DataError: The table is not as described. The message has the file, line, column and a remedy.
    """
    entries, rows = _rows(table, reading, labels)
    if "split" not in rows.columns:
        entries = split_up(entries, ("val", "test"), split_seed)
    return picture_set(entries, rows.path, reading, labels, checked=not rows.collected)


def read_pictures_at(
    paths: Sequence[Path],
    reading: ReaderOptions,
    *,
    labels: Sequence[str],
    folder: Path | None = None,
    unknown: UnknownLabels | None = None,
) -> ImageSet:
    """Reads pictures for a trained model: files of any name, folders (recursively), and tables.

    A picture in a folder with the name of a label has this label; others have none. A picture with a label is in `test`
    unless a folder above it has the name of a split. Ids are paths as given.

    Args:
        paths: Paths, read in this order; the content of a folder is sorted.
        reading: How each picture is read.
        labels: Labels of the model, in its order.
        folder: The folder that paths in tables begin in. Default: that of the table.
        unknown: Where other labels of tables go. Default: they are errors.
    """
    entries: list[Entry] = []
    for path in paths:
        if path.name.lower().endswith(_TABLES):
            rows, table = _rows(path, reading, labels, folder, unknown)
            has_splits = "split" in table.columns
            entries += [replace(each, split=each.split if has_splits or not each.label else "test") for each in rows]
        elif path.is_dir():
            walk = picture_walk(path)
            inside = [by_folder_names(path, each, set(labels)) for each in walk.files(path)]
            walk.report()
            if not inside:
                remedy = "Their names end in .jpg, .png, .webp, .bmp, .tif, .gif or .ppm."
                raise DataError(message(path, None, None, "the folder holds no picture", remedy))
            entries += usable(inside, reading, path)[0]
        else:
            entries += usable([Entry(path, str(original_path(path)))], reading, path, may_be_none=True)[0]
    if not entries:
        raise DataError(f"{', '.join(map(str, paths[:3]))}: no picture is usable.")
    ids = Counter(each.id for each in entries)
    repeated = [name for name, count in ids.items() if count > 1]
    if repeated:
        have = "picture is" if len(repeated) == 1 else "pictures are"
        warn(f"{len(repeated):,} {have} named more than once, and read once; the first: {repeated[0]}.")
        first: dict[str, Entry] = {}
        for each in entries:
            first.setdefault(each.id, each)
        entries = list(first.values())
    return picture_set(entries, Path(*paths[:1]), reading, labels, checked=True)


def _rows(
    path: Path | str,
    reading: ReaderOptions,
    labels: Sequence[str] | None,
    folder: Path | None = None,
    unknown: UnknownLabels | None = None,
) -> tuple[list[Entry], Table]:
    """Reads the pictures of a table; returns them with the table, which holds the problems that were collected."""
    table = read_table(
        path,
        required=["path"] if labels is not None else ["path", "label"],
        on_bad_row=reading.on_bad_row,
        encoding=reading.encoding,
    )
    unused = [name for name in table.columns if name not in ("path", "label", "split")]
    if unused:
        warn(f"{table.path}: {join_names(unused)} not used; a picture has a path, a label and a split.")
    animated: list[str] = []
    read = _row_reader(table, reading, labels, animated, folder or table.path.parent, unknown)
    entries = list(table.parse(read))
    if table.skipped:
        warn(table.report())
    warn_of_animated(table.path, animated)
    return entries, table


def _row_reader(
    table: Table,
    reading: ReaderOptions,
    labels: Sequence[str] | None,
    animated: list[str],
    folder: Path,
    unknown: UnknownLabels | None,
) -> Callable[[Row], Entry]:
    lines: dict[str, int] = {}
    known = None if labels is None else set(labels)
    has_label, has_split = "label" in table.columns, "split" in table.columns

    def read(row: Row) -> Entry:
        label = read_label(row, "label", known, unknown, row.text("path", empty=True)) if has_label else ""
        label = unicodedata.normalize("NFC", label)
        split = row.choice("split", SPLITS, empty=True) if has_split else ""
        if split and not label and known is None:
            what = f"the picture is in split {split!r} and has no label"
            raise row.error("label", what, "Fill it in, or leave the split empty.")
        name = row.name("path")
        if not name:
            return Entry(Path(), "")  # the row is bad, and its problem is collected
        path = folder / name
        real = os.path.realpath(path)
        if real in lines:
            raise row.error("path", f"{name!r} is already the picture of line {lines[real]}", "Remove one of the two.")
        lines[real] = row.line
        if not os.path.lexists(path):
            where = "the folder of the table" if folder == table.path.parent else str(folder)
            remedy = "Write / between folders." if "\\" in name else f"Write the path from {where}."
            raise row.error("path", f"there is no file {path}", remedy)
        try:
            if verified(path, reading):
                animated.append(name)
        except ImageError as error:
            raise row.error("path", f"{name!r}: {error.what}", error.remedy) from None
        return Entry(path, name, label, split, row.line)

    return read
