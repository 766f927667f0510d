"""Pictures with captions, as all readers return them: captions and splits in memory, pixels read on access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from zoo.data.splits import SplitSet


@dataclass(frozen=True, eq=False)
class CaptionSet(SplitSet):
    """Pictures with captions.

    Args:
        pixels: Pixels of each picture, uint8 (3,h,w): an array of all pictures, or a sequence that reads files.
        captions: The captions of each picture; None: not known.
        ids: Path of each picture's file, or name of the picture.
        splits: `TRAIN`, `VAL`, `TEST` or `NONE` of `zoo.data.splits`.
        size: Height and width of every picture. Default: sizes differ, or are not known before files are read.
        regions: Of the first caption of each picture, for each word between white space: top, left, bottom and right of
            the box that it speaks of, in the picture's own pixels; an empty box where it speaks of no place. Default:
            not known.
    """

    pixels: UInt8[np.ndarray, "n 3 h w"] | Sequence[Any]
    captions: Sequence[Sequence[str]] | None
    ids: Sequence[str]
    splits: Int[np.ndarray, " n"]
    size: tuple[int, int] | None = None
    regions: Sequence[Float[np.ndarray, "w 4"]] | None = None
