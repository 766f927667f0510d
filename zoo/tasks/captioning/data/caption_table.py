"""The user's own pictures and captions: a table with a row for each caption. `data/README.md` describes it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from zoo.data.json_lines import open_table
from zoo.data.splits import NONE, SPLITS, TEST, split_stratified
from zoo.data.tables import Required, Row, Table, message
from zoo.errors import DataError, count_noun, join_names, warn
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.vision.data.image_io import ImageError
from zoo.tasks.vision.data.image_list import Decoded, ReaderOptions, verified, warn_of_animated

_LONGEST = 10_000
"""The most characters of a caption."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of a table's columns.

    Args:
        image: Paths of pictures.
        caption: Captions.
        split: Splits, where there is such a column.
    """

    image: str = "image"
    caption: str = "caption"
    split: str = "split"


DEFAULT_COLUMNS = Columns()


def read_caption_table(
    path: Path,
    reading: ReaderOptions,
    *,
    columns: Columns,
    folder: Path | None = None,
    split_seed: int | None = 0,
) -> CaptionSet:
    """Reads a table (CSV, TSV, JSONL) with a row for each caption; a picture may have several rows.

    Args:
        path: The table.
        reading: How pictures are read, and what becomes of bad rows.
        columns: The names of its columns.
        folder: The folder that paths start from, and that all pictures are in. Default: that of the table.
        split_seed: Seed of the 60/20/20 split of the pictures of a table without splits. None: these are pictures for a
            trained model, whose captions may be missing, and which are for its test if they have one.

    Raises:
        DataError: The table is not as described. The message has the file, line, column and a remedy.
    """
    named = {columns.image: "data.image", columns.caption: "data.caption"}
    required: Required = [columns.image] if split_seed is None else named
    table = open_table(path, required=required, on_bad_row=reading.on_bad_row, encoding=reading.encoding)
    unused = [name for name in table.columns if name not in (columns.image, columns.caption, columns.split)]
    if unused:
        warn(f"{path}: {join_names(unused)} not used; a caption has a picture, its text and perhaps a split.")
    found = _Found(table, reading, columns, (folder or path.parent).resolve(), is_input=split_seed is None)
    for _ in table.parse(found.add):
        pass
    if table.skipped:
        warn(table.report())
    warn_of_animated(path, [each.name for each in found.entries.values() if each.is_animated])
    return found.made(split_seed, is_whole=not table.collected)


@dataclass
class _Entry:
    """A picture of the table."""

    name: str
    line: int
    path: Path
    split: int
    is_animated: bool = False
    captions: list[str] = field(default_factory=list)


class _Found:
    """Pictures as the rows of a table name them."""

    def __init__(self, table: Table, reading: ReaderOptions, columns: Columns, folder: Path, *, is_input: bool) -> None:
        self.table = table
        self.reading = reading
        self.columns = columns
        self.folder = folder
        self.is_input = is_input
        self.has_captions = columns.caption in table.columns
        self.entries: dict[str, _Entry] = {}
        """Pictures by their real paths, so that one that has two names is known again."""
        self.rows = 0
        """Number of good rows."""
        self._bad: dict[str, ImageError] = {}

    def add(self, row: Row) -> None:
        """Adds the caption of a row; a bad row adds nothing."""
        name, path = row.name(self.columns.image), row.path(self.columns.image, self.folder)
        caption = row.text(self.columns.caption, empty=self.is_input) if self.has_captions else ""
        if len(caption) > _LONGEST:
            what = f"the caption has {len(caption):,} characters, and {_LONGEST:,} are the most"
            raise row.error(self.columns.caption, what, "Shorten it.")
        split = self._split(row)
        if row.is_bad:
            return
        real = os.path.realpath(path)
        entry = self.entries.get(real)
        if entry is None:
            entry = _Entry(name, row.line, path, split, self._verified(row, name, path, real))
        elif entry.split != split:
            what = f"{name!r} is in {_named(split)} here, and in {_named(entry.split)} in line {entry.line}"
            raise row.error(self.columns.split, what, "Put all captions of a picture into one split.")
        self.entries[real] = entry
        self.rows += 1
        if caption:
            entry.captions.append(caption)

    def made(self, split_seed: int | None, *, is_whole: bool) -> CaptionSet:
        """Returns the pictures; if `is_whole`, i.e. no bad row is missing, their splits are checked."""
        entries = list(self.entries.values())
        splits = np.array([each.split for each in entries], dtype=np.int64)
        if split_seed is not None and self.columns.split not in self.table.columns:
            splits = split_stratified(np.zeros(len(splits), dtype=np.int64), split_seed)
        for number, name in enumerate(SPLITS) if split_seed is not None and is_whole else ():
            if not (splits == number).any():
                remedy = "Give more pictures, or put some there."
                raise DataError(message(self.table.path, None, None, f"no picture is in {name!r}", remedy))
        captions = [each.captions for each in entries]
        if self.is_input and any(captions) and not all(captions):
            lacking = next(each for each in entries if not each.captions)
            remedy = "Give every picture a caption, or none."
            raise DataError(message(self.table.path, lacking.line, self.columns.caption, "it is empty", remedy))
        has_captions = bool(captions) and all(captions)
        if not has_captions and self.rows > len(entries):
            again = count_noun(self.rows - len(entries), "row")
            warn(f"{self.table.path}: left out {again} without a caption, whose picture stands in a row above.")
        if self.is_input and has_captions:
            splits[splits == NONE] = TEST
        return CaptionSet(
            pixels=Decoded([each.path for each in entries], self.reading),
            captions=captions if has_captions else None,
            ids=[each.name for each in entries],
            splits=splits,
        )

    def _split(self, row: Row) -> int:
        if self.columns.split not in self.table.columns:
            return NONE
        name = row.choice(self.columns.split, SPLITS, empty=True)
        return SPLITS.index(name) if name in SPLITS else NONE

    def _verified(self, row: Row, name: str, path: Path, real: str) -> bool:
        """Returns whether the picture has several frames; raises the error of the row if it cannot be read."""
        if real not in self._bad:
            try:
                return verified(path, self.reading)
            except ImageError as error:
                self._bad[real] = error
        known = self._bad[real]
        raise row.error(self.columns.image, f"{name!r}: {known.what}", known.remedy)


def _named(split: int) -> str:
    return "no split" if split == NONE else repr(SPLITS[split])
