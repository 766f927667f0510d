"""Draws heat maps over photos, small multiples of layers and heads, and channel gates by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms.v2 import functional as tv

from zoo.maps import plots
from zoo.tasks.vision.batch import Picture

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

Box = tuple[float, float, float, float]
"""Top, left, height and width in pixels of a picture."""

_LONGEST = 640
"""Maximum number of pixels along the longer side of a drawn photo; more would not be visible."""
_STRONGEST = 0.8
"""Opacity of the maximum heat, so that the photo remains visible."""
_ACROSS = 6
_MOST = 12
_CELL = 1.35
_CLASSES = 24
_CHANNELS = 48
_LAYERS = 4


@dataclass(frozen=True, eq=False)
class Panels:
    """A row of small copies of the photo, each with a heat map."""

    title: str
    names: Sequence[str]
    heats: Sequence[Float[Tensor, "_r _c"]]


def sheet(
    picture: Picture,
    heat: Float[Tensor, "r c"],
    *,
    title: str,
    name: str,
    description: str = "",
    seen: Box | None = None,
    panels: Sequence[Panels] = (),
) -> Figure:
    """Draws one example: the photo, the photo with the scored map, and small ones with layers and heads.

    Of a row with more than twelve panels, twelve at equal distances are drawn.

    Args:
        picture: The picture as the file has it. Its gold is framed.
        heat: The scored map, over the part of the picture that the net sees.
        title: The prediction and the label.
        name: Name of the scored map, such as "rollout".
        description: A sentence on the map.
        seen: The part of the picture that the net sees. Default: all.
        panels: Rows of small pictures.
    """
    from matplotlib.figure import Figure

    groups = [_thin(each) for each in panels if each.heats]
    rows = [ceil(len(each.heats) / _ACROSS) for each in groups]
    shape = picture.pixels.shape[1] / picture.pixels.shape[2]
    big, small = min(max(3.6 * shape, 2.2), 5.4), min(max(_CELL * shape, 0.8), 2.2)
    heights = [big + 0.7, *(row * (small + 0.28) + 0.34 for row in rows)]
    figure = Figure(figsize=(8.6, sum(heights) + 0.75), layout="constrained", facecolor="white")
    figure.suptitle(plots.short(title, 80), fontsize=13, color=plots.INK, fontweight="bold", parse_math=False)
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _pair(parts[0], picture, heat, name=name, description=description, seen=seen)
    for part, group, count in zip(parts[1:], groups, rows, strict=True):
        part.suptitle(group.title, fontsize=10, color=plots.QUIET, x=0.012, ha="left", parse_math=False)
        for axes in (cells := part.subplots(count, _ACROSS, squeeze=False).flatten()):
            axes.set_axis_off()
        for axes, label, each in zip(cells, group.names, group.heats, strict=False):
            overlay(axes, picture, each, seen=seen)
            axes.set_title(plots.short(label, 20), fontsize=8, color=plots.INK, pad=2, parse_math=False)
    return figure


def overlay(
    axes: Axes,
    picture: Picture,
    heat: Float[Tensor, "r c"] | None,
    *,
    seen: Box | None = None,
    greatest: float | None = None,
) -> Any:
    """Draws the photo, grey under heat, with a frame around gold; returns the heat's image, for its colour bar.

    Args:
        axes: Where to draw.
        picture: The photo.
        heat: Weights over the part that the net sees. None: there is none.
        seen: This part. Default: all of the photo.
        greatest: The weight that has the last colour. Default: the largest of this heat.
    """
    height, width = picture.pixels.shape[1:]
    pixels = _small(picture.pixels)
    extent = (0.0, float(width), float(height), 0.0)
    axes.imshow(_to_drawing(pixels, is_grey=heat is not None), extent=extent, interpolation="antialiased")
    image = None
    if heat is not None:
        part = (0.0, 0.0, float(height), float(width)) if seen is None else seen
        image = _lay(axes, heat, part, largest_weight([heat]) if greatest is None else greatest)
    if picture.gold is not None and picture.gold.any():
        _frame(axes, picture.gold)
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return image


def colours() -> Any:
    """Returns matplotlib's viridis with opacity that rises with the value."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    shades = colormaps["viridis"](np.linspace(0.0, 1.0, 256))
    shades[:, 3] = _STRONGEST * np.linspace(0, 1, 256) ** 0.5
    return ListedColormap(shades, name="heat")


def upsample(heat: Float[Tensor, "r c"], size: tuple[int, int]) -> Float[Tensor, "h w"]:
    """Interpolates a heat map bilinearly, with the value of each cell at its centre."""
    return F.interpolate(heat.float()[None, None], size=size, mode="bilinear", align_corners=False)[0, 0]


def gate_figure(table: pd.DataFrame) -> Figure:
    """Draws mean gates, with a panel for each layer, a row for each class, and the channels that differ most by class.

    Args:
        table: The table of `GateTable.frame`: layer, site, channel, class, mean, sd, n.
    """
    from matplotlib.figure import Figure

    layers = sorted(table["layer"].unique())
    layers = [layers[at] for at in _spread(len(layers), _LAYERS)]
    names = list(table.groupby("class", sort=False)["n"].max().nlargest(_CLASSES).index)
    names = [name for name in table["class"].unique() if name in set(names)]
    tall = max(0.24 * len(names), 1.0) + 1.0
    figure = Figure(figsize=(10.5, tall * len(layers) + 0.9), layout="constrained", facecolor="white")
    figure.suptitle("mean gate of a channel, by class", fontsize=13, color=plots.INK, fontweight="bold")
    image = None
    for axes, layer in zip(figure.subplots(len(layers), 1, squeeze=False)[:, 0], layers, strict=True):
        rows = table[table["layer"] == layer]
        cells = rows.pivot(index="class", columns="channel", values="mean").loc[names]
        chosen = cells.std(axis=0, ddof=0).fillna(0.0).nlargest(_CHANNELS).index if len(names) > 1 else cells.columns
        cells = cells[sorted(chosen[:_CHANNELS], key=lambda channel: float(cells[channel].mean()))]
        image = axes.imshow(cells.to_numpy(), cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        every = ceil(cells.shape[1] / 24)
        axes.set_xticks(range(0, cells.shape[1], every), labels=cells.columns[::every], fontsize=7, color=plots.INK)
        axes.set_yticks(
            range(len(names)), labels=[plots.short(name, 16) for name in names], fontsize=8, color=plots.INK
        )
        axes.set_xlabel("channel, from the least open to the most", fontsize=8, color=plots.QUIET)
        of = rows["channel"].nunique()
        most = (
            f"the {cells.shape[1]} of {of} that differ most between classes" if of > cells.shape[1] else "all channels"
        )
        axes.set_title(f"{rows['site'].iloc[0]}: {most}", fontsize=9, color=plots.QUIET, loc="left", parse_math=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    draw_bar(figure, image, figure.axes, "gate (0 shut, 1 open)")
    return figure


def _pair(figure: SubFigure, picture: Picture, heat: Tensor, *, name: str, description: str, seen: Box | None) -> None:
    """Draws the photo beside the photo with its heat."""
    plain, hot = figure.subplots(1, 2)
    overlay(plain, picture, None)
    image = overlay(hot, picture, heat, seen=seen)
    framed = "" if picture.gold is None or not picture.gold.any() else "; framed: where it should look"
    plain.set_title(f"picture{framed}", fontsize=10, color=plots.QUIET)
    hot.set_title(name, fontsize=10, color=plots.QUIET, parse_math=False)
    if image is not None:
        draw_bar(figure, image, [hot], "share of the heat")
    if description:
        figure.supxlabel(description, fontsize=10.5, color=plots.INK, parse_math=False)


def largest_weight(heats: Sequence[Tensor]) -> float:
    """Returns the weight that has the last colour in panels of one scale; uniform heat has the middle colour."""
    return max((max(float(heat.max()), 2 * float(heat.mean())) for heat in heats), default=0.0) or 1.0


def _lay(axes: Axes, heat: Tensor, seen: Box, greatest: float) -> Any:
    """Draws heat over the part of a picture that the net saw."""
    top, left, tall, wide = seen
    fine = [max(1, round(_LONGEST / 2 * side / max(tall, wide))) for side in (tall, wide)]
    return axes.imshow(
        upsample(heat.detach().cpu(), (fine[0], fine[1])).numpy(),
        extent=(left, left + wide, top + tall, top),
        cmap=colours(),
        vmin=0,
        vmax=greatest,
        interpolation="antialiased",
    )


def _frame(axes: Axes, gold: Bool[Tensor, "h w"]) -> None:
    """Draws the outline of gold pixels, with a white border that is visible on any photo."""
    from matplotlib.collections import LineCollection

    padded = np.pad(gold.cpu().numpy(), 1)
    across = [[(a, r), (b, r)] for r, a, b in _runs(padded[1:, 1:-1] != padded[:-1, 1:-1])]
    down = [[(c, a), (c, b)] for c, a, b in _runs((padded[1:-1, 1:] != padded[1:-1, :-1]).T)]
    for colour, width in (("white", 3.4), (plots.GOLD, 1.8)):
        frame = LineCollection(across + down, colors=colour, linewidths=width, capstyle="projecting")
        frame.set_clip_on(False)
        axes.add_collection(frame, autolim=False)


def _runs(marked: np.ndarray) -> list[tuple[int, int, int]]:
    """Returns the row, start and end of each run of marked cells."""
    edges = np.diff(np.pad(marked.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    starts, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)
    return [(int(row), int(start), int(end)) for (row, start), (_, end) in zip(starts, ends, strict=True)]


def draw_bar(figure: Figure | SubFigure, image: Any, axes: Sequence[Axes], label: str) -> None:
    """Draws the colour bar of an image beside some axes."""
    bar = figure.colorbar(image, ax=list(axes), shrink=0.6, pad=0.02, aspect=24)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=plots.INK)
    bar.ax.locator_params(nbins=4)
    bar.set_label(label, color=plots.QUIET, fontsize=8.5)


def _to_drawing(pixels: Shaped[Tensor, "c h w"], *, is_grey: bool) -> np.ndarray:
    """Returns pixels for drawing, in colour or, if colour is reserved for the heat, in grey."""
    if len(pixels) not in (1, 3):
        pixels = pixels.float().mean(0, keepdim=True)
    if len(pixels) == 1 or is_grey:
        weights = torch.tensor([0.299, 0.587, 0.114]) if len(pixels) == 3 else torch.ones(1)
        grey = (pixels.float() * weights[:, None, None]).sum(0)
        pixels = grey.expand(3, -1, -1)
    return (pixels.float() / 255).clamp(0, 1).permute(1, 2, 0).numpy()


def _small(pixels: Shaped[Tensor, "c h w"]) -> Shaped[Tensor, "c h2 w2"]:
    """Downsamples a photo that is larger than `_LONGEST`."""
    factor = _LONGEST / max(pixels.shape[1:])
    if factor >= 1:
        return pixels
    size = [max(1, round(side * factor)) for side in pixels.shape[1:]]
    smaller: Tensor = tv.resize(pixels, size, antialias=True)  # without a copy of the whole in floats
    return smaller


def _thin(group: Panels) -> Panels:
    chosen = _spread(len(group.heats), _MOST)
    return Panels(group.title, [group.names[at] for at in chosen], [group.heats[at] for at in chosen])


def _spread(count: int, most: int) -> list[int]:
    """Returns at most `most` numbers below `count`, at equal distances, including the first and the last."""
    if count <= most:
        return list(range(count))
    return [round(at * (count - 1) / (most - 1)) for at in range(most)]
