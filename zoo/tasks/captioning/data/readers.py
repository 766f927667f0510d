"""The user's own pictures and captions: tables with a row for each caption, files and folders (`data/README.md`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from zoo.data.json_lines import is_table
from zoo.data.records import Column, Record, Records, Schema, assign_splits
from zoo.data.splits import NONE, SPLITS
from zoo.data.tables import message
from zoo.errors import DataError, count_noun, warn
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.vision.data import image_list
from zoo.tasks.vision.data.image_list import Decoded, TablePictures
from zoo.tasks.vision.data.readers import read_pictures_at

_MOST_CHARACTERS = 10_000
"""The most characters of a caption."""


@dataclass(frozen=True, kw_only=True)
class ReaderOptions(image_list.ReaderOptions):
    """How pictures and captions are read.

    Args:
        image: Name of the column of pictures.
        caption: Likewise of captions.
        split: Likewise of splits, where there is such a column.
    """

    image: str = "image"
    caption: str = "caption"
    split: str = "split"


def read_caption_table(
    path: Path,
    reading: ReaderOptions,
    *,
    folder: Path | None = None,
    split_seed: int | None = 0,
) -> CaptionSet:
    """Reads a table (CSV, TSV, JSONL) with a row for each caption; a picture may have several rows.

    Args:
        path: The table.
        reading: How pictures are read, and what becomes of bad rows.
        folder: The folder that paths start from, and that all pictures are in. Default: that of the table.
        split_seed: Seed of the 60/20/20 split of the pictures of a table without splits. None: these are pictures for a
            trained model, whose captions may be missing, and which are for its test if they have one.

    Raises:
        DataError: The table is not as described. The message has the file, line, column and a remedy.
    """
    is_input = split_seed is None
    schema = Schema(
        noun="picture",
        columns={
            "image": Column(reading.image, "file", required=True),
            "caption": Column(reading.caption, required=not is_input, most=_MOST_CHARACTERS),
            "split": Column(reading.split, "split"),
        },
        usage="a caption has a picture, its text and perhaps a split",
        has_options=True,
        id="image",
    )
    records = Records(path, schema, reading, is_input=is_input)
    files = TablePictures(reading, folder, path)
    pictures: dict[str, _Picture] = {}  # by their real paths, so that one that has two names is known again

    def make(record: Record) -> None:
        image, real = files.check(record)
        picture = pictures.get(real) or _Picture(record.id, record.line, image, record.split)
        if picture.split != record.split:
            here, above = (_name_split(split) for split in (record.split, picture.split))
            problem = f"{record.id!r} is in {here} here, and in {above} in line {picture.line}"
            raise record.error("split", problem, "Put all captions of a picture into one split.")
        pictures[real] = picture
        picture.rows += 1
        picture.captions += filter(None, [record["caption"]])

    for _ in records.parse(make):
        pass
    files.report()
    return _make_set(list(pictures.values()), records, reading, split_seed)


def read_pictures(paths: Sequence[Path], reading: ReaderOptions, *, folder: Path | None = None) -> CaptionSet:
    """Reads pictures for a trained model: files and folders, or a table of pictures, which may have captions.

    Args:
        paths: The files and folders.
        reading: How pictures are read.
        folder: The folder that paths in a table begin in. Default: that of the table.
    """
    tables = [path for path in paths if is_table(path)]
    if tables and len(paths) > 1:
        raise DataError(f"{tables[0]}: this is a table; give one table, or pictures and folders.")
    if tables:
        return read_caption_table(tables[0], reading, folder=folder, split_seed=None)
    pictures = read_pictures_at(paths, reading, labels=[])
    return CaptionSet(pictures.pixels, None, pictures.ids, np.full(len(pictures), NONE))


@dataclass
class _Picture:
    """A picture of the table."""

    name: str
    line: int
    path: Path
    split: int
    rows: int = 0
    captions: list[str] = field(default_factory=list)


def _make_set(
    pictures: Sequence[_Picture], records: Records, reading: ReaderOptions, split_seed: int | None
) -> CaptionSet:
    captions = [picture.captions for picture in pictures]
    has_captions = bool(captions) and all(captions)
    if any(captions) and not has_captions:
        bare = next(picture for picture in pictures if not picture.captions)
        remedy = "Give every picture a caption, or none."
        raise DataError(message(records.path, bare.line, reading.caption, "it is empty", remedy))
    again = sum(picture.rows for picture in pictures) - len(pictures)
    if again and not has_captions:
        rows = count_noun(again, "row")
        warn(f"{records.path}: left out {rows} without a caption, whose picture stands in a row above.")
    splits = [picture.split for picture in pictures]
    return CaptionSet(
        pixels=Decoded([picture.path for picture in pictures], reading),
        captions=captions if has_captions else None,
        ids=[picture.name for picture in pictures],
        splits=assign_splits(
            records.path, "picture", splits, seed=split_seed, known=has_captions, checks=records.is_complete
        ),
    )


def _name_split(split: int) -> str:
    return "no split" if split == NONE else repr(SPLITS[split])
