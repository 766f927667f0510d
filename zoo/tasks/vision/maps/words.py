"""Where the heat over a picture lies, as a rectangle of cells and in words."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.maps.words import number

_WHAT = {
    **dict.fromkeys(("cam", "gradient_cam"), "of the evidence"),
    "saliency": "of its sensitivity",
    "spatial_gate": "of what the gate lets through",
}


@dataclass(frozen=True)
class Region:
    """The rectangle around the greatest heat.

    Args:
        top, left, bottom, right: Rows and columns, both ends included, counted from 1.
        share: Of all heat.
        grid: Rows and columns of the whole.
    """

    top: int
    left: int
    bottom: int
    right: int
    share: float
    grid: tuple[int, int]

    @property
    def where(self) -> str:
        """Which ninth of the picture its middle is in: "top right"."""
        down = _third((self.top + self.bottom - 1) / 2 / self.grid[0], ("top", "", "bottom"))
        across = _third((self.left + self.right - 1) / 2 / self.grid[1], ("left", "", "right"))
        return f"{down} {across}".strip() or "in the middle"

    @property
    def stands_out(self) -> bool:
        """Whether it has a half more than its share by area."""
        rows, columns = self.bottom - self.top + 1, self.right - self.left + 1
        return self.share > 1.5 * rows * columns / (self.grid[0] * self.grid[1])


def region(heat: Float[Tensor, "r c"]) -> Region | None:
    """Around the hottest place and those joined to it that have half its heat; None where there is no heat at all."""
    heat = heat.detach().float().cpu()
    if not heat.max() > 0:
        return None
    around = _joined(heat >= heat.max() / 2, int(heat.argmax()))
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
    """As in "looks at rows 3-4, columns 5-6 (.61 of its attention), top right"."""
    found = region(heat)
    what = _WHAT.get(how, "of its attention")
    if found is None:
        return "looks nowhere: no place speaks for the class"
    if not found.stands_out:
        return f"looks at nothing in particular: no place of {found.grid[0]} x {found.grid[1]} stands out"
    rows, columns = _range("row", found.top, found.bottom), _range("column", found.left, found.right)
    return f"looks at {rows}, {columns} ({number(found.share)} {what}), {found.where}"


def _joined(hot: Bool[Tensor, "r c"], start: int) -> Bool[Tensor, "r c"]:
    """The cells that can be reached from one through neighbours, also at corners."""
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
