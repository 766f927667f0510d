"""Windows of a feature map; attention runs within each window."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from zoo.attention import DenseSupport
from zoo.attention.kernels.cache import cache_recent

_SUPPORTS = 16


@dataclass(frozen=True)
class Windows:
    """Windows of one size, shifted cyclically (Liu et al. 2021, section 3.2 and fig. 4).

    The map is padded at its right and lower edge to a multiple of the window and shifted cyclically, so that all
    windows have the same size. In a window that joins opposite edges, cells only attend to cells of their own edge.

    Args:
        rows: Number of rows of the map.
        columns: Number of columns of the map.
        window: Side of a window.
        down: Number of rows by which windows are shifted.
        right: Number of columns by which windows are shifted.
    """

    rows: int
    columns: int
    window: int
    down: int
    right: int

    @property
    def down_across(self) -> tuple[int, int]:
        """The numbers of windows from top to bottom and from left to right."""
        return -(-self.rows // self.window), -(-self.columns // self.window)

    def cut(self, x: Shaped[Tensor, "b r c d"]) -> Shaped[Tensor, "w n d"]:
        """Cuts maps into windows, each an example; those of a picture are adjacent, row by row."""
        (down, across), side = self.down_across, self.window
        x = F.pad(x, (0, 0, 0, across * side - self.columns, 0, down * side - self.rows))
        if self.down or self.right:
            x = x.roll((-self.down, -self.right), (1, 2))
        return x.view(-1, down, side, across, side, x.shape[-1]).transpose(2, 3).reshape(-1, side**2, x.shape[-1])

    def join(self, x: Shaped[Tensor, "w n d"]) -> Shaped[Tensor, "b r c d"]:
        """Inverts `cut`: joins windows to maps, without the padding."""
        (down, across), side = self.down_across, self.window
        x = x.view(-1, down, across, side, side, x.shape[-1]).transpose(2, 3)
        x = x.reshape(-1, down * side, across * side, x.shape[-1])
        if self.down or self.right:
            x = x.roll((self.down, self.right), (1, 2))
        return x[:, : self.rows, : self.columns]

    def cells(self) -> Int[Tensor, "w n"]:
        """Returns the index on the map, row by row, of each cell of each window; -1 for padding."""
        numbers = torch.arange(1, self.rows * self.columns + 1).view(1, self.rows, self.columns, 1)
        return self.cut(numbers).squeeze(-1) - 1

    def support(self, batch: int, device: torch.device) -> DenseSupport:
        """Returns the support of attention within the windows of a batch; it is cached for all layers."""
        return _support(self, batch, device)


@cache_recent(_SUPPORTS)
def _support(windows: Windows, batch: int, device: torch.device) -> DenseSupport:
    if not windows.down and not windows.right:
        return DenseSupport()
    down, across = (count * windows.window for count in windows.down_across)
    wrapped_down = torch.arange(down, device=device) >= down - windows.down
    wrapped_right = torch.arange(across, device=device) >= across - windows.right
    unshifted = Windows(down, across, windows.window, 0, 0)
    region = unshifted.cut((2 * wrapped_down[:, None] + wrapped_right)[None, :, :, None])
    permitted = region == region.transpose(1, 2)
    return DenseSupport(permitted.unsqueeze(1).repeat(batch, 1, 1, 1))
