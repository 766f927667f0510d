"""Reads the user's own pictures from folders or from a table of paths. `data/README.md` describes the formats."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from zoo.data.folders import check_is_folder
from zoo.data.json_lines import is_table
from zoo.data.records import Column, Record, Records, Schema, assign_splits
from zoo.data.splits import NONE
from zoo.data.stdin import original_path
from zoo.data.tables import message
from zoo.data.unknown_labels import UnknownLabels
from zoo.errors import DataError, warn
from zoo.tasks.vision.data.image_folder import class_folders, make_entry, picture_walk
from zoo.tasks.vision.data.image_list import Entry, ReaderOptions, TablePictures, picture_set, split_up, usable
from zoo.tasks.vision.data.image_set import ImageSet


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
    check_is_folder(root)
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
    path = Path(table)
    entries, is_complete = _read_rows(path, reading, labels)
    if all(entry.split == NONE for entry in entries):
        entries = split_up(entries, ("val", "test"), split_seed)
    return picture_set(entries, path, reading, labels, checked=is_complete)


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
        if is_table(path):
            entries += _read_rows(path, reading, labels, folder, unknown, is_input=True)[0]
        elif path.is_dir():
            walk = picture_walk(path)
            inside = [make_entry(path, each, set(labels)) for each in walk.files(path)]
            walk.report()
            if not inside:
                remedy = "Their names end in .jpg, .png, .webp, .bmp, .tif, .gif or .ppm."
                raise DataError(message(path, None, None, "the folder holds no picture", remedy))
            entries += usable(inside, reading, path)[0]
        else:
            entries += usable([Entry(path, str(original_path(path)))], reading, path, may_be_none=True)[0]
    if not entries:
        raise DataError(f"{', '.join(map(str, paths[:3]))}: no picture is usable.")
    has_label = np.array([bool(entry.label) for entry in entries])
    splits = assign_splits(paths[0], "picture", [entry.split for entry in entries], seed=None, known=has_label)
    first: dict[str, Entry] = {}
    for entry, split in zip(entries, splits.tolist(), strict=True):
        first.setdefault(entry.id, replace(entry, split=split))
    counts = Counter(entry.id for entry in entries)
    if repeated := [name for name, count in counts.items() if count > 1]:
        have = "picture is" if len(repeated) == 1 else "pictures are"
        warn(f"{len(repeated):,} {have} named more than once, and read once; the first: {repeated[0]}.")
    return picture_set(list(first.values()), Path(*paths[:1]), reading, labels, checked=True)


def _read_rows(
    path: Path,
    reading: ReaderOptions,
    labels: Sequence[str] | None,
    folder: Path | None = None,
    unknown: UnknownLabels | None = None,
    *,
    is_input: bool = False,
) -> tuple[list[Entry], bool]:
    """Reads the pictures of a table; returns whether none is missing because its problems were listed."""
    schema = Schema(
        noun="picture",
        columns={
            "path": Column("path", "file", required=True),
            "label": Column("label", "label", required=labels is None),
            "split": Column("split", "split"),
        },
        usage="a picture has a path, a label and a split",
        id="path",
    )
    records = Records(
        path, schema, reading, is_input=is_input, known=None if labels is None else set(labels), unknown=unknown
    )
    pictures = TablePictures(reading, folder, path)

    def make(record: Record) -> Entry:
        picture, real = pictures.check(record, "path")
        record.claim("path", real, "picture", shown=record["path"])
        label = unicodedata.normalize("NFC", record["label"])
        return Entry(picture, record["path"], label, record.split, record.line)

    entries = list(records.parse(make))
    pictures.report()
    return entries, records.is_complete
