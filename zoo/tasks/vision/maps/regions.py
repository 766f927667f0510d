"""Describes a heat map by a rectangle of cells and in words."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.maps.describe import number

_WHAT = {
    **dict.fromkeys(("cam", "gradient_cam"), "of the evidence"),
    "saliency": "of its sensitivity",
    "spatial_gate": "of what the gate lets through",
}


@dataclass(frozen=True)
class Region:
    """The rectangle around the maximum of a heat map.

    Args:
        top, left, bottom, right: First and last row and column, counted from 1.
        share: Share of the total heat.
        grid: Numbers of rows and columns of the heat map.
    """

    top: int
    left: int
    bottom: int
    right: int
    share: float
    grid: tuple[int, int]

    @property
    def where(self) -> str:
        """The ninth of the picture that holds the centre of the rectangle, such as "top right"."""
        down = _third((self.top + self.bottom - 1) / 2 / self.grid[0], ("top", "", "bottom"))
        across = _third((self.left + self.right - 1) / 2 / self.grid[1], ("left", "", "right"))
        return f"{down} {across}".strip() or "in the middle"

    @property
    def stands_out(self) -> bool:
        """True if the share of heat is more than 1.5 times the share of the area."""
        rows, columns = self.bottom - self.top + 1, self.right - self.left + 1
        return self.share > 1.5 * rows * columns / (self.grid[0] * self.grid[1])


def region(heat: Float[Tensor, "r c"]) -> Region | None:
    """Returns the rectangle of the hottest cell and connected cells with at least half its heat; None without heat."""
    heat = heat.detach().float().cpu()
    if not heat.max() > 0:
        return None
    around = _find_connected(heat >= heat.max() / 2, int(heat.argmax()))
    rows, columns = around.any(1).nonzero().flatten().tolist(), around.any(0).nonzero().flatten().tolist()
    box = heat[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return Region(
        top=rows[0] + 1,
        left=columns[0] + 1,
        bottom=rows[-1] + 1,
        right=columns[-1] + 1,
        share=float(box.sum() / heat.sum()),
        grid=(heat.shape[0], heat.shape[1]),
    )


def where_it_looks(heat: Float[Tensor, "r c"], how: str) -> str:
    """Returns words such as "looks at rows 3-4, columns 5-6 (.61 of its attention), top right"."""
    found = region(heat)
    what = _WHAT.get(how, "of its attention")
    if found is None:
        return "looks nowhere: no place is evidence for the class"
    if not found.stands_out:
        return f"looks at nothing in particular: no place of {found.grid[0]} x {found.grid[1]} stands out"
    rows, columns = _range("row", found.top, found.bottom), _range("column", found.left, found.right)
    return f"looks at {rows}, {columns} ({number(found.share)} {what}), {found.where}"


def _find_connected(hot: Bool[Tensor, "r c"], start: int) -> Bool[Tensor, "r c"]:
    """Returns the hot cells that are connected to one, also diagonally."""
    reached = torch.zeros_like(hot)
    reached.view(-1)[start] = True
    for _ in range(hot.numel()):
        grown = torch.nn.functional.max_pool2d(reached[None].float(), 3, stride=1, padding=1)[0].bool() & hot
        if torch.equal(grown, reached):
            break
        reached = grown
    return reached


def _third(share: float, names: tuple[str, str, str]) -> str:
    return names[min(int(share * 3), 2)]


def _range(noun: str, first: int, last: int) -> str:
    return f"{noun} {first}" if first == last else f"{noun}s {first}-{last}"
