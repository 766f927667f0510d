"""A map cut into windows, each of which attention takes as an example of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from zoo.attention import DenseSupport
from zoo.attention.kernels.kept import kept

_SUPPORTS = 16


@dataclass(frozen=True)
class Windows:
    """Windows of one size, shifted cyclically (Liu et al. 2021, section 3.2 and fig. 4).

    The map is padded on its right and lower side to whole windows and shifted cyclically, so that all windows are of
    full size; in those at the edge only what was neighbours attends to each other.

    Args:
        rows: Of the map.
        columns: Of the map.
        window: Side of a window.
        down: By how many rows windows are shifted.
        right: By how many columns windows are shifted.
    """

    rows: int
    columns: int
    window: int
    down: int
    right: int

    @property
    def down_across(self) -> tuple[int, int]:
        """How many windows are below each other, and how many next to each other."""
        return -(-self.rows // self.window), -(-self.columns // self.window)

    def cut(self, x: Shaped[Tensor, "b r c d"]) -> Shaped[Tensor, "w n d"]:
        """Each window as an example, those of a picture one after the other, row by row."""
        (down, across), side = self.down_across, self.window
        x = F.pad(x, (0, 0, 0, across * side - self.columns, 0, down * side - self.rows))
        if self.down or self.right:
            x = x.roll((-self.down, -self.right), (1, 2))
        return x.view(-1, down, side, across, side, x.shape[-1]).transpose(2, 3).reshape(-1, side**2, x.shape[-1])

    def join(self, x: Shaped[Tensor, "w n d"]) -> Shaped[Tensor, "b r c d"]:
        """The opposite of `cut`: what stands at each place of the map."""
        (down, across), side = self.down_across, self.window
        x = x.view(-1, down, across, side, side, x.shape[-1]).transpose(2, 3)
        x = x.reshape(-1, down * side, across * side, x.shape[-1])
        if self.down or self.right:
            x = x.roll((self.down, self.right), (1, 2))
        return x[:, : self.rows, : self.columns]

    def cells(self) -> Int[Tensor, "w n"]:
        """The number of each window's cells on the map, row by row; -1 for padding."""
        numbers = torch.arange(1, self.rows * self.columns + 1).view(1, self.rows, self.columns, 1)
        return self.cut(numbers).squeeze(-1) - 1

    def support(self, batch: int, device: torch.device) -> DenseSupport:
        """Who may attend to whom in the windows of a batch; made once, and shared by all layers."""
        return _support(self, batch, device)


@kept(_SUPPORTS)
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
