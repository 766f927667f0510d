"""Weights of the cells of a grid as maps of a picture in its own size."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.tasks.vision.plots import Box


def upsample_cells(
    weights: Float[Tensor, "n k"], grid: tuple[int, int], seen: Box, size: tuple[int, int]
) -> Float[Tensor, "n h w"]:
    """Returns the weight of each pixel of a picture: bilinear between the middles of cells, zero where no net looked.

    The sum over the part that the net sees is about that of the weights.

    Args:
        weights: Weights of the cells, row by row.
        grid: Rows and columns.
        seen: The part of the picture that the net sees; the cells divide it.
        size: Height and width of the picture in pixels.
    """
    top, left, height, width = seen
    down = ((torch.arange(size[0]) + 0.5 - top) / height * 2 - 1).float()
    across = ((torch.arange(size[1]) + 0.5 - left) / width * 2 - 1).float()
    at = torch.stack(torch.meshgrid(down, across, indexing="ij")[::-1], -1)
    cells = weights.detach().float().cpu().view(1, -1, *grid)
    found = F.grid_sample(cells, at[None], mode="bilinear", padding_mode="border", align_corners=False)[0]
    inside = (down.abs() <= 1).unsqueeze(1) & (across.abs() <= 1)
    pixels_of_a_cell = height * width / (grid[0] * grid[1])
    return found * inside / pixels_of_a_cell


def box_mask(box: Float[Tensor, "4"], seen: Box, size: tuple[int, int]) -> Bool[Tensor, "h w"]:
    """Returns the pixels of a picture whose middles lie in a box, given as shares of the part that the net sees."""
    top, left, height, width = seen
    first, start, last, end = box.tolist()
    rows, columns = torch.arange(size[0]) + 0.5, torch.arange(size[1]) + 0.5
    down = (rows >= top + first * height) & (rows <= top + last * height)
    across = (columns >= left + start * width) & (columns <= left + end * width)
    has_area = last > first and end > start
    return (down.unsqueeze(1) & across) if has_area else torch.zeros(size, dtype=torch.bool)
