"""Pictures as nets read them and as they are drawn, and the places of boxes in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms.v2 import functional as tv

from zoo.attention.kernels.cache import outside_inference_mode
from zoo.data.transfer import to_device

_MOST_DRAWN = 1 << 22
"""Pixels of a drawn picture, and of a map in its size: a map of 10,000 x 10,000 would take 400 MB for each word."""
HALF = 0.5
"""A cell is gold if it holds at least this share of what the best cell holds of a box, as in `zoo.tasks.vision`."""


@dataclass(frozen=True, eq=False)
class OriginalImage:
    """A picture in its own size, which is read when it is asked for.

    Args:
        pictures: The pixels of all pictures, by number.
        number: The number of this one.
        seen: The part of it that the net sees: top, left, height and width in its pixels.
    """

    pictures: Sequence[Any] | UInt8[np.ndarray, "n 3 h w"]
    number: int
    seen: tuple[float, float, float, float]

    def read(self) -> Drawn:
        """Reads the picture, and reduces it if it has more pixels than a map of it should."""
        pixels = torch.as_tensor(self.pictures[self.number])
        height, width = size = int(pixels.shape[1]), int(pixels.shape[2])
        factor = math.sqrt(_MOST_DRAWN / (height * width))
        if factor >= 1:
            return Drawn(pixels, self.seen, size)
        small = [max(1, int(side * factor)) for side in size]
        down, across = small[0] / height, small[1] / width
        top, left, tall, wide = self.seen
        return Drawn(
            tv.resize(pixels, small, antialias=True), (top * down, left * across, tall * down, wide * across), size
        )


class Drawn(NamedTuple):
    """A picture as it is drawn.

    Attributes:
        pixels: Its pixels, reduced to `_MOST_DRAWN`.
        seen: The part of them that the net sees: top, left, height and width.
        size: Height and width of the picture itself.
    """

    pixels: UInt8[Tensor, "3 h w"]
    seen: tuple[float, float, float, float]
    size: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of what is drawn."""
        return self.pixels.shape[1], self.pixels.shape[2]


@dataclass(frozen=True, eq=False)
class ImageInput:
    """Pictures as nets read them: pixels, or features.

    Args:
        pixels: Normalised pixels.
        features: Features of the cells of a grid, row by row.
        grid: Rows and columns of the grid of features.
    """

    pixels: Float[Tensor, "b 3 h w"] | None = None
    features: Float[Tensor, "b k d"] | None = None
    grid: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def is_real(self) -> Bool[Tensor, "b k"]:
        """True everywhere: the pixels, or the cells, of a batch are as many in all pictures."""
        places = self.values.shape[-2:].numel() if self.features is None else self.values.shape[1]
        return outside_inference_mode(
            lambda: torch.ones(len(self), places, dtype=torch.bool, device=self.values.device)
        )

    @cached_property
    def lengths(self) -> Int[Tensor, " b"]:
        """Number of pixels, or cells, of each picture."""
        return outside_inference_mode(
            lambda: torch.full((len(self),), self.is_real.shape[1], device=self.values.device)
        )

    def select(self, numbers: Int[Tensor, " s"]) -> ImageInput:
        pixels, features = (None if each is None else each[numbers] for each in (self.pixels, self.features))
        return ImageInput(pixels, features, self.grid)

    def to(self, device: torch.device | str) -> ImageInput:
        return to_device(self, device)

    @property
    def values(self) -> Tensor:
        """What nets read: pixels, or features."""
        if self.features is not None:
            return self.features
        if self.pixels is None:
            raise ValueError("pictures are pixels or features, and there are none")
        return self.pixels


def keep_cells(
    pixels: Float[Tensor, "#v c h w"], keep: Bool[Tensor, "v k"], grid: tuple[int, int]
) -> Float[Tensor, "v c h w"]:
    """Returns normalised pixels of a picture for each variant; cells that it does not keep have the mean colour, 0.

    Args:
        pixels: The picture.
        keep: Mask of the cells, row by row.
        grid: Rows and columns of the cells.
    """
    is_kept = keep.view(-1, 1, *grid).to(pixels.dtype)
    return pixels * F.interpolate(is_kept, pixels.shape[2:], mode="nearest")


def cells_of(boxes: Float[Tensor, "*b 4"], grid: tuple[int, int]) -> Bool[Tensor, "*b k"]:
    """Returns the cells of a grid that boxes lie in: those with at least half as much of a box as the best cell.

    Args:
        boxes: Top, left, bottom and right as shares of the height and width.
        grid: Rows and columns.
    """
    top, left, bottom, right = boxes.unsqueeze(-2).unbind(-1)
    rows, columns = (torch.arange(count, device=boxes.device) for count in grid)
    down = _overlap(top * grid[0], bottom * grid[0], rows)
    across = _overlap(left * grid[1], right * grid[1], columns)
    inside = (down.unsqueeze(-1) * across.unsqueeze(-2)).flatten(-2)
    return (inside > 0) & (inside >= HALF * inside.amax(-1, keepdim=True))


def _overlap(first: Tensor, last: Tensor, cells: Tensor) -> Tensor:
    """Returns how much of [first, last] lies in each cell [c, c + 1]."""
    return (torch.minimum(last, cells + 1.0) - torch.maximum(first, cells.to(first))).clamp(min=0.0)
