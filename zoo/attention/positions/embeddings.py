"""Position embeddings that are added to inputs before the first layer."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.kernels.dtypes import accumulation_dtype
from zoo.types import PositiveFloat, PositiveInt, validate_ranges


@validate_ranges
class Sinusoidal(nn.Module):
    """x_p + (sin, cos)(p / 10000^(2i/d)) (Vaswani et al. 2017, section 3.5), for inputs of any length.

    Sines stand at even indices, cosines at odd ones.

    Cost: O(n d)

    Args:
        dim: Width of the inputs, an even number.
        base: Base of the wavelengths, which range from 2 pi to 2 pi times this.
    """

    def __init__(self, *, dim: PositiveInt, base: PositiveFloat = 10_000.0) -> None:
        super().__init__()
        if dim % 2:
            raise ValueError(f"sines and cosines come in pairs: dim must be even, got {dim}")
        self.dim = dim
        self.base = base

    def forward(self, x: Float[Tensor, "b n d"], start: int = 0) -> Float[Tensor, "b n d"]:
        """Adds the positions `start`, `start + 1`, ... to x."""
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        return x + sinusoid(positions.to(accumulation_dtype(x)), self.dim, self.base).to(x.dtype)


@validate_ranges
class Sinusoidal2D(nn.Module):
    """Sinusoids of the row in the first half of the width, of the column in the second (Carion et al. 2020, A.4).

    Frequencies are those of Vaswani et al. 2017, section 3.5, with d/2 for d. DETR's code also scales each side to
    [0, 2 pi]; this class does not.

    Cost: O(n d)

    Args:
        dim: Width of the inputs, a multiple of 4.
        base: Base of the wavelengths, which range from 2 pi to 2 pi times this.
    """

    def __init__(self, *, dim: PositiveInt, base: PositiveFloat = 10_000.0) -> None:
        super().__init__()
        if dim % 4:
            raise ValueError(f"two axes with pairs of sines and cosines: dim must be divisible by 4, got {dim}")
        self.dim = dim
        self.base = base

    def forward(self, x: Float[Tensor, "b n d"], grid: tuple[int, int]) -> Float[Tensor, "b n d"]:
        """Adds positions to x, whose inputs are in row-major order; `grid` is (rows, columns)."""
        rows, columns = _grid_of(x, grid)
        steps = torch.arange(max(grid), device=x.device).to(accumulation_dtype(x))
        axis = sinusoid(steps, self.dim // 2, self.base).to(x.dtype)
        down = axis[:rows].unsqueeze(1).expand(-1, columns, -1)
        across = axis[:columns].unsqueeze(0).expand(rows, -1, -1)
        return x + torch.cat([down, across], -1).flatten(0, 1)


@validate_ranges
class Learned(nn.Module):
    """x_p + w_p with a learned vector for each position (Gehring et al. 2017, section 3.1).

    Cost: O(n d)

    Args:
        dim: Width of the inputs.
        length: Number of positions that have a vector.
        interpolate: If True, the vectors are interpolated to a longer input; if False, a longer input is refused.
    """

    def __init__(self, *, dim: PositiveInt, length: PositiveInt, interpolate: bool = False) -> None:
        super().__init__()
        self.interpolate = interpolate
        self.vectors = nn.Parameter(torch.empty(length, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.vectors, std=0.02)

    def forward(self, x: Float[Tensor, "b n d"], start: int = 0) -> Float[Tensor, "b n d"]:
        """Adds the positions `start`, `start + 1`, ... to x."""
        length, stop = len(self.vectors), start + x.shape[1]
        if stop <= length:
            return x + self.vectors[start:stop]
        if not self.interpolate:
            raise ValueError(f"{stop} positions, but vectors for {length}: give a larger length or interpolate=True")
        if start:
            raise ValueError("interpolated positions depend on the whole length: give the whole input, with start=0")
        return x + self.resize(stop)

    def resize(self, length: int) -> Float[Tensor, "{length} d"]:
        """Interpolates the vectors linearly to another length, for example for fine-tuning."""
        vectors = self.vectors.to(accumulation_dtype(self.vectors)).T.unsqueeze(0)
        return F.interpolate(vectors, size=length, mode="linear")[0].T.to(self.vectors.dtype)


@validate_ranges
class Learned2D(nn.Module):
    """x_p + w_p on a grid, interpolated for grids of other sizes (Dosovitskiy et al. 2021, section 3.2).

    Interpolation is bicubic with antialiasing. A class token has no position in the grid: prepend it afterwards.

    Cost: O(n d)

    Args:
        dim: Width of the inputs.
        grid: Number of rows and columns that have a vector.
    """

    def __init__(self, *, dim: PositiveInt, grid: tuple[PositiveInt, PositiveInt]) -> None:
        super().__init__()
        rows, columns = grid
        self.vectors = nn.Parameter(torch.empty(rows, columns, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.trunc_normal_(self.vectors, std=0.02)

    def forward(self, x: Float[Tensor, "b n d"], grid: tuple[int, int] | None = None) -> Float[Tensor, "b n d"]:
        """Adds positions to x, whose inputs are in row-major order.

        Args:
            grid: Number of rows and columns of the inputs. Default: those of the learned grid.
        """
        rows, columns = _grid_of(x, (self.vectors.shape[0], self.vectors.shape[1]) if grid is None else grid)
        return x + self.resize((rows, columns)).flatten(0, 1)

    def resize(self, grid: tuple[int, int]) -> Float[Tensor, "r c d"]:
        """Interpolates the vectors to another grid, for example for fine-tuning."""
        return resized_grid(self.vectors, grid)


def resized_grid(vectors: Float[Tensor, "r c d"], grid: tuple[int, int]) -> Float[Tensor, "rows columns d"]:
    """Interpolates vectors to another grid: bicubic, with antialiasing."""
    if tuple(vectors.shape[:2]) == tuple(grid):
        return vectors
    channels = vectors.to(accumulation_dtype(vectors)).permute(2, 0, 1).unsqueeze(0)
    resized = F.interpolate(channels, size=tuple(grid), mode="bicubic", antialias=True)
    return resized[0].permute(1, 2, 0).to(vectors.dtype)


def sinusoid(positions: Float[Tensor, " n"], dim: int, base: float = 10_000.0) -> Float[Tensor, "n {dim}"]:
    """Computes sin(p / base^(2i/d)) at index 2i and cos(p / base^(2i/d)) at index 2i + 1."""
    angles = positions.unsqueeze(1) * frequencies(dim, base, positions)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def frequencies(dim: int, base: float, like: Float[Tensor, "..."]) -> Float[Tensor, " {dim}//2"]:
    """Computes base^(-2i/d) for every i < d/2."""
    return base ** (-torch.arange(0, dim, 2, dtype=like.dtype, device=like.device) / dim)


def _grid_of(x: Tensor, grid: tuple[int, int]) -> tuple[int, int]:
    rows, columns = grid
    if rows * columns != x.shape[1]:
        raise ValueError(f"a grid of {rows} x {columns} has {rows * columns} cells, got {x.shape[1]} inputs")
    return rows, columns
