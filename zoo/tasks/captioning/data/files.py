"""The user's own pictures: files and folders. `data/README.md` describes the formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zoo.data.splits import NONE
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.vision.data.files import read_pictures_at
from zoo.tasks.vision.data.listing import Reading


def read_pictures(paths: Sequence[Path], reading: Reading) -> CaptionSet:
    """Reads pictures for a trained model, whose captions are not known."""
    found = read_pictures_at(paths, reading, labels=[])
    return CaptionSet(found.pixels, None, found.ids, np.full(len(found), NONE))
