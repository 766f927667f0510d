"""A set of pictures as every reader gives it: labels and splits in memory, pixels read when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8

from zoo.tasks.vision.batch import Picture

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class PictureSet:
    """Pictures of any size or of one.

    Args:
        pixels: Picture by number, uint8 (c,h,w): one array for all, or a sequence that reads the files.
        labels: Numbers of the classes; -1 where not known.
        splits: train, val, test, or "" where a picture is in none.
        label_names: Of the classes, in order.
        ids: The path of each picture, or a name of the example.
        channels: Of every picture.
        size: (height, width) of every picture; None where they differ or are not known before they are read.
        gold: Pixels where attention belongs, one (h,w) a picture, of its own size.
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
        """The pictures of a split; of `all`, every one."""
        return np.arange(len(self)) if split == "all" else np.flatnonzero(self.splits == split)
