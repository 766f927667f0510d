"""Positions of the tokens of a picture, in a sequence or on a grid, interpolated for other resolutions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import Learned
from zoo.attention.factories import make_sized
from zoo.attention.positions.embeddings import resized_grid


class TokenPositions(nn.Module):
    """Adds positions to the tokens of a picture, and puts further tokens (a class token) in front of them.

    Positions of a sequence include the tokens in front; positions of a grid do not.

    Args:
        make: Class or partial of `zoo.attention.positions`, called with those of `dim`, `length` and `grid` that its
            signature has; None adds no positions.
        dim: Width of a token.
        grid: Numbers of rows and columns of tokens that learned positions are made for.
        front: Number of tokens in front.
    """

    embedding: Any

    def __init__(
        self, make: Callable[..., nn.Module] | None, *, dim: int, grid: tuple[int, int], front: int = 0
    ) -> None:
        super().__init__()
        sizes: dict[str, Any] = {"dim": dim, "length": front + math.prod(grid), "grid": grid}
        self.embedding = None if make is None else make_sized(make, sizes)
        self.is_of_grid = make is not None and "grid" in inspect.signature(self.embedding.forward).parameters
        self.grid = grid
        self.front = front

    def forward(
        self, x: Float[Tensor, "b n d"], grid: tuple[int, int], front: Float[Tensor, "b f d"] | None = None
    ) -> Float[Tensor, "b m d"]:
        """Adds positions to `x`, whose tokens are the cells of `grid`, (rows, columns), row by row."""
        if self.is_of_grid:
            x = self.embedding(x, grid)
        if front is not None:
            x = torch.cat([front, x], 1)
        if self.is_of_grid or self.embedding is None:
            return x
        if isinstance(self.embedding, Learned) and grid != self.grid:
            return x + self._interpolate(self.embedding.vectors, self.grid, grid)
        return self.embedding(x)  # type: ignore[no-any-return]

    def resize_parameter(self, old: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Interpolates learned positions of another grid (Dosovitskiy et al. 2021, section 3.2)."""
        if old.dim() == 3:
            return resized_grid(old, self.grid)
        return self._interpolate(old, _grid_like(len(old) - self.front, self.grid), self.grid)

    def _interpolate(
        self, vectors: Float[Tensor, "n d"], old: tuple[int, int], new: tuple[int, int]
    ) -> Float[Tensor, "m d"]:
        """Interpolates the positions of the picture, and keeps those in front."""
        of_picture = resized_grid(vectors[self.front :].view(*old, -1), new)
        return torch.cat([vectors[: self.front], of_picture.flatten(0, 1)])


def _grid_like(length: int, grid: tuple[int, int]) -> tuple[int, int]:
    """Returns the grid with this number of positions whose sides have the ratio of `grid`, or else a square."""
    factor = math.gcd(*grid)
    for rows, columns in ((grid[0] // factor, grid[1] // factor), (1, 1)):
        times = math.isqrt(max(0, length) // (rows * columns))
        if times and times * times * rows * columns == length:
            return times * rows, times * columns
    raise ValueError(
        f"{length} positions are neither a grid whose sides are as {grid[0]} to {grid[1]} nor a square, so that their "
        "grid is unknown"
    )
