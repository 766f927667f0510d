"""The user's own pictures, for a trained model. `data/README.md` describes the formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zoo.data.json_lines import is_table
from zoo.data.splits import NONE
from zoo.errors import DataError
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.captioning.data.caption_table import DEFAULT_COLUMNS, Columns, read_caption_table
from zoo.tasks.vision.data.image_list import ReaderOptions
from zoo.tasks.vision.data.readers import read_pictures_at


def read_pictures(
    paths: Sequence[Path], reading: ReaderOptions, *, columns: Columns = DEFAULT_COLUMNS, folder: Path | None = None
) -> CaptionSet:
    """Reads pictures for a trained model: files and folders, or a table of pictures, which may have captions.

    Args:
        paths: The files and folders.
        reading: How pictures are read.
        columns: Names of the columns of a table.
        folder: The folder that paths in a table begin in. Default: that of the table.
    """
    tables = [path for path in paths if is_table(path)]
    if tables and len(paths) > 1:
        raise DataError(f"{tables[0]}: this is a table; give one table, or pictures and folders.")
    if tables:
        return read_caption_table(tables[0], reading, columns=columns, folder=folder, split_seed=None)
    found = read_pictures_at(paths, reading, labels=[])
    return CaptionSet(found.pixels, None, found.ids, np.full(len(found), NONE))
