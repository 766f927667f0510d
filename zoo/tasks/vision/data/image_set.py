"""A set of pictures, as all readers return it: labels and splits in memory, pixels read on access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8

from zoo.tasks.vision.batch import Picture


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Pictures with labels and splits.

    Args:
        pixels: Pixels of each picture, uint8 (c,h,w): an array of all pictures, or a sequence that reads files.
        labels: Index of each picture's class; -1 if it is unknown.
        splits: Split of each picture: train, val, test, or "" for none.
        label_names: Name of each class.
        ids: Path of each picture's file, or name of the example.
        channels: Number of channels of every picture.
        size: (height, width) of every picture. Default: sizes differ, or are not known before files are read.
        gold: Mask (h,w) of each picture, True at the pixels that determine its label. Default: unknown.
    """

    pixels: UInt8[np.ndarray, "n c h w"] | Sequence[Any]
    labels: Int[np.ndarray, " n"]
    splits: np.ndarray
    label_names: tuple[str, ...]
    ids: Sequence[str]
    channels: int
    size: tuple[int, int] | None = None
    gold: Bool[np.ndarray, "n h w"] | Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> Picture:
        gold = None if self.gold is None else torch.as_tensor(self.gold[number])
        return Picture(
            pixels=torch.as_tensor(self.pixels[number]),
            label=int(self.labels[number]),
            id=self.ids[number],
            split=str(self.splits[number]),
            gold=gold,
        )

    def numbers(self, split: str) -> Int[np.ndarray, " k"]:
        """Returns the indices of the pictures of a split (train, val, test or all)."""
        return np.arange(len(self)) if split == "all" else np.flatnonzero(self.splits == split)
