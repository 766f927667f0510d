"""Pictures of a question: the picture that it asks about beside its words, affinities, and maps of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from zoo.maps import LabelledMap, plots
from zoo.tasks.vision.batch import Picture
from zoo.tasks.vision.plots import Box, overlay

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Mark = tuple[str, tuple[int, int]]
"""A name, and the first and the last of the labels that have it."""
_ACROSS = 5
_PANEL = 1.8
"""Width of a panel in inches."""
_MARK = "#b3263f"
_MOST = 30
"""Words that are drawn at most."""


def picture_and_words(
    *,
    pixels: UInt8[Tensor, "3 h w"],
    seen: Box,
    gold: Bool[Tensor, "h w"] | None,
    title: str,
    heat: Float[Tensor, "r c"] | None,
    words: Sequence[str],
    weights: Float[Tensor, " m"] | None,
) -> Figure:
    """Draws the picture, the weights of its cells over it with gold framed, and the weight of each word as a bar.

    Args:
        pixels: The picture in its own size.
        seen: The part of it that the net sees.
        gold: The pixels that decide; None if they are not known.
        title: Question and answer.
        heat: Weights of the cells; None if there are none.
        words: The words of the question.
        weights: Their weights; None likewise.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.4), layout="constrained", facecolor="white")
    figure.suptitle(plots.short(title, 100), fontsize=11, color=plots.INK, parse_math=False)
    own, laid, bars = figure.subplots(1, 3)
    overlay(own, Picture(pixels, -1, "", ""), None)
    image = overlay(laid, Picture(pixels, -1, "", "", gold), heat, seen=seen)
    laid.set_title("where the question looks", fontsize=9, color=plots.QUIET)
    if image is not None:
        bar = figure.colorbar(image, ax=laid, shrink=0.8, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, labelsize=8, labelcolor=plots.INK)
    if weights is None:
        bars.set_axis_off()
    else:
        _draw_bars(bars, words[:_MOST], weights[:_MOST].tolist())
    return figure


def affinity_sheet(
    words: Sequence[str],
    affinity: Float[Tensor, "m r c"],
    *,
    pixels: UInt8[Tensor, "3 h w"],
    seen: Box,
    gold: Bool[Tensor, "h w"] | None,
    title: str,
) -> Figure:
    """Draws for each word its signed affinity with every cell of the picture: red is positive, blue negative.

    The other arguments are those of `picture_and_words`.
    """
    from matplotlib.figure import Figure

    shown = words[:_MOST]
    shape = min(max(pixels.shape[1] / pixels.shape[2], 0.4), 2.0)
    rows = ceil(len(shown) / _ACROSS)
    size = (_ACROSS * _PANEL + 0.6, rows * (_PANEL * shape + 0.28) + 0.6)
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    figure.suptitle(plots.short(f"affinity: {title}", 100), fontsize=11, color=plots.INK, parse_math=False)
    panels = figure.subplots(rows, _ACROSS, squeeze=False).flatten()
    top, left, tall, wide = seen
    most = float(affinity.abs().max()) or 1.0
    image: Any = None
    for axes in panels:
        axes.set_axis_off()
    for axes, word, cells in zip(panels, shown, affinity, strict=False):
        overlay(axes, Picture(pixels, -1, "", "", gold), None)
        extent = (left, left + wide, top + tall, top)
        how: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -most, "vmax": most, "interpolation": "nearest", "alpha": 0.8}
        image = axes.imshow(cells.numpy(), extent=extent, **how)
        axes.set(xlim=(0, pixels.shape[2]), ylim=(pixels.shape[1], 0))
        axes.set_title(plots.short(word, 20), fontsize=9, color=plots.INK, pad=2, parse_math=False)
    bar = figure.colorbar(image, ax=list(panels), shrink=0.8, pad=0.01)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=plots.INK)
    bar.set_label("affinity", color=plots.QUIET, fontsize=9)
    return figure


def text_map(found: LabelledMap, *, title: str, marks: Mapping[str, Sequence[Mark]]) -> Figure:
    """Draws a map with words along both axes, and lines beside the words that have a mark.

    Args:
        found: The map.
        title: Question and answer.
        marks: Marks of the words along "query" or "key".
    """
    figure = plots.heat_map(found, title=title)
    axes = figure.axes[0]
    for axis, each in marks.items():
        for name, (first, last) in each:
            along, beside = [first - 0.45, last + 0.45], [-0.5, -0.5]
            x, y = (beside, along) if axis == "query" else (along, beside)
            style: dict[str, Any] = {"color": _MARK, "linewidth": 4, "solid_capstyle": "butt", "clip_on": False}
            axes.plot(x, y, label=name, scalex=False, scaley=False, **style)
    if any(marks.values()):
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.01), "ncols": 2}
        axes.legend(frameon=False, fontsize=9, borderpad=0, **place)  # of the gold too
    return figure


def _draw_bars(axes: Axes, words: Sequence[str], weights: Sequence[float]) -> None:
    """Draws a bar for each word, the first at the top."""
    axes.barh(range(len(words)), weights, 0.7, color="#3f78b5")
    axes.set_yticks(range(len(words)), labels=[plots.short(word) for word in words], fontsize=9, color=plots.INK)
    for text in axes.get_yticklabels():
        text.set_parse_math(False)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1e-6, *weights) * 1.15)
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    for place, weight in enumerate(weights):
        axes.text(weight, place, f" {weight:.2f}".replace(" 0.", " ."), va="center", fontsize=8, color=plots.INK)
    axes.set_title("the words of the question", fontsize=9, color=plots.QUIET)
