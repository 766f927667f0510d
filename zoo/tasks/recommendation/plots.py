"""Pictures of recommendations: bars over a history, maps of items by items, and weight by distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.maps import plots
from zoo.maps.describe import number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

UP, DOWN = "#3f78b5", "#c9607f"
_SHOWN = 30
"""Maximum number of items of a history that are drawn."""
_COLUMNS = 4
_PANELS = 6
_LONGEST = 30
_NUMBERED = 12
"""Maximum number of items of a map whose weights are written in its cells."""
_LINES = ("#3f78b5", "#c9607f", "#5fae74", "#9474bd", "#a8795a", "#45a8a8", "#7286ad", "#a5ae4e")


@dataclass(frozen=True, eq=False)
class Bars:
    """A bar chart with one value for each item of a history.

    Args:
        title: Title, such as the recommended item.
        values: Value of each item, oldest first.
        unit: Label of the values: "share of attention", "what it adds to the score".
    """

    title: str
    values: Float[Tensor, " n"]
    unit: str


@dataclass(frozen=True, eq=False)
class Panel:
    """The map of a layer or a head, with one row for each query, oldest first."""

    title: str
    weights: Float[Tensor, "n n"]


def session(
    titles: Sequence[str],
    *,
    title: str,
    caption: str = "",
    bars: Sequence[Bars] = (),
    panels: Sequence[Panel] = (),
    gold: Bool[Tensor, " n"] | None = None,
) -> Figure:
    """Draws one user: the contribution of each past item to recommendations, and the attention of the layers.

    Of a history with more than thirty items, the bars show the thirty with the greatest values, and the maps the last
    thirty.

    Args:
        titles: Titles of the items of the history, oldest first.
        title: Title of the figure.
        caption: Text below the title.
        bars: Bar charts, side by side; the first four are drawn.
        panels: Maps; the first six are drawn.
        gold: Mask of the items that decide the next one. They have another colour, which `caption` may explain.
    """
    from matplotlib.figure import Figure

    marked = torch.zeros(len(titles), dtype=torch.bool) if gold is None else gold.cpu()
    shown = _heaviest(bars, len(titles))
    last = range(max(0, len(titles) - _SHOWN), len(titles))
    tall = 0.2 * len(shown) + 1.0
    rows = -(-min(len(panels), _PANELS) // 2)
    deep = 0.2 * len(last) + 0.75
    figure = Figure(figsize=(11.5, tall + rows * deep + 0.95), layout="constrained", facecolor="white")
    figure.suptitle(plots.short(title, 95), fontsize=13, color=plots.INK, fontweight="bold", parse_math=False)
    parts = figure.subfigures(1 + rows, 1, height_ratios=[tall + 0.35, *[deep] * rows], squeeze=False)[:, 0]
    _bars(parts[0], titles, shown, bars[:_COLUMNS], marked, caption)
    for row, part in enumerate(parts[1:]):
        _panels(part, titles, last, panels[2 * row : 2 * row + 2], marked)
    return figure


def distance_figure(table: pd.DataFrame) -> Figure:
    """Draws the mean weight by the distance of the key from the query, with a line for each layer and head.

    Args:
        table: Table of `ByDistance.frame`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 4.4), layout="constrained", facecolor="white")
    axes = figure.subplots()
    lines = list(table.groupby(["layer", "head"], sort=True))
    for at, ((layer, head), rows) in enumerate(lines):
        name, dashes = f"layer {layer}, head {head}", ("-", "--", ":")[at // len(_LINES) % 3]
        distance, weight = rows["distance"].to_numpy(), rows["weight"].to_numpy()
        axes.plot(distance, weight, dashes, color=_LINES[at % len(_LINES)], linewidth=1.8, label=name)
    first = lines[0][1]
    axes.plot(
        first["distance"], first["uniform"], color=plots.QUIET, linewidth=1.2, linestyle=(0, (1, 2)), label="uniform"
    )
    axes.set_xlabel("positions back (0: the item that attends)", fontsize=9.5, color=plots.QUIET)
    axes.set_ylabel("mean weight", fontsize=9.5, color=plots.QUIET)
    axes.set_title("how far back attention looks", fontsize=13, color=plots.INK, fontweight="bold")
    axes.set_ylim(bottom=min(0.0, float(table["weight"].min())))
    axes.locator_params(axis="x", integer=True)
    _plain(axes)
    axes.spines[["left", "bottom"]].set_visible(True)
    axes.legend(frameon=False, fontsize=9, labelcolor=plots.INK, ncols=1 + len(lines) // 12)
    return figure


def _heaviest(bars: Sequence[Bars], count: int) -> list[int]:
    """Returns the indices of the items to draw, oldest first."""
    if count <= _SHOWN:
        return list(range(count))
    most = torch.zeros(count)
    for each in bars[:_COLUMNS]:
        values = each.values.detach().float().cpu().abs()
        most = torch.maximum(most, values / values.max().clamp(min=1e-12))
    return sorted(most.topk(_SHOWN).indices.tolist())


def _bars(
    figure: SubFigure, titles: Sequence[str], shown: Sequence[int], bars: Sequence[Bars], gold: Tensor, caption: str
) -> None:
    figure.suptitle(caption, fontsize=10, color=plots.QUIET, parse_math=False)
    if not bars:
        return
    cells: Any = figure.subplots(1, len(bars), sharey=True, squeeze=False)[0]
    rows = np.arange(len(shown))
    for axes, each in zip(cells, bars, strict=True):
        values = each.values.detach().float().cpu()[shown].numpy()
        colours = [
            plots.GOLD if gold[at] else UP if value >= 0 else DOWN for at, value in zip(shown, values, strict=True)
        ]
        axes.barh(rows, values, color=colours, height=0.72)
        axes.axvline(0, color=plots.QUIET, linewidth=0.8)
        alike = [other.values for other in bars if other.unit == each.unit]
        _write_values(axes, values, torch.cat(alike), is_signed=not each.unit.startswith("share"))
        axes.set_title(plots.short(each.title, 34), fontsize=9.5, color=plots.INK, parse_math=False)
        axes.set_xlabel(each.unit, fontsize=8.5, color=plots.QUIET)
        _plain(axes)
        axes.set_xticks([])
    cells[0].set_yticks(rows, labels=[f"{_cut_title(titles[at])}  {at + 1}" for at in shown], fontsize=8.5)
    _colour_labels(cells[0].get_yticklabels(), shown, gold)
    cells[0].set_ylim(len(shown) - 0.4, -0.6)
    rest = f"the {len(shown)} of {len(titles)} items that weigh most, " if len(shown) < len(titles) else ""
    cells[0].set_ylabel(f"{rest}oldest first", fontsize=8.5, color=plots.QUIET)


def _write_values(axes: Axes, values: np.ndarray, alike: Float[Tensor, " m"], *, is_signed: bool) -> None:
    """Writes the value at the end of each visible bar. Charts with the same unit have the same scale."""
    low, high = min(0.0, float(alike.min())), max(0.0, float(alike.max()))
    span = (high - low) or 1.0
    for row, value in enumerate(values.tolist()):
        if abs(value) < 0.04 * span:
            continue
        text = f"{value:+.2f}" if is_signed else number(value)
        side = "left" if value >= 0 else "right"
        axes.text(
            value + (0.02 if value >= 0 else -0.02) * span,
            row,
            text,
            ha=side,
            va="center",
            fontsize=7.5,
            color=plots.INK,
        )
    axes.set_xlim(low - (0.22 * span if low < 0 else 0.0), high + 0.22 * span)


def _panels(figure: SubFigure, titles: Sequence[str], last: range, panels: Sequence[Panel], gold: Tensor) -> None:
    from matplotlib.patches import Rectangle

    cells: Any = figure.subplots(1, 2, sharey=True, squeeze=False)[0]
    for axes in cells[len(panels) :]:
        axes.set_axis_off()
    count = len(last)
    for axes, panel in zip(cells, panels, strict=False):
        weights = panel.weights.detach().float().cpu()[last.start :, last.start :].numpy().copy()
        weights[np.triu_indices(count, 1)] = np.nan
        # The first queries have few keys, so their large weights are left out of the scale.
        usual = float(np.nanmax(weights[min(3, count - 1) :])) or 1.0
        axes.imshow(weights, cmap=plots.colours(), vmin=0, vmax=usual, aspect="auto", interpolation="nearest")
        axes.add_patch(
            Rectangle((-0.5, count - 1.5), count, 1, fill=False, edgecolor=plots.INK, linewidth=1.4, clip_on=False)
        )
        which = f", the last {count} of {len(titles)} items" if count < len(titles) else ""
        axes.set_title(
            f"{plots.short(panel.title, 40)}{which}; darkest: {number(usual)}", fontsize=9.5, color=plots.INK
        )
        if count <= _NUMBERED:
            _write_weights(axes, weights, usual)
        every = 1 if count <= 24 else 2
        axes.set_xticks(range(0, count, every), labels=[str(at + 1) for at in last][::every], fontsize=7.5)
        axes.set_xlabel(
            "is attended to; framed: the last item, after which the next comes", fontsize=8.5, color=plots.QUIET
        )
        _plain(axes)
        _colour_labels(axes.get_xticklabels(), list(last)[::every], gold)
    cells[0].set_yticks(range(count), labels=[f"{_cut_title(titles[at])}  {at + 1}" for at in last], fontsize=8)
    _colour_labels(cells[0].get_yticklabels(), list(last), gold)
    cells[0].set_ylabel("attends", fontsize=8.5, color=plots.QUIET)


def _write_weights(axes: Axes, weights: np.ndarray, darkest: float) -> None:
    for (row, column), weight in np.ndenumerate(weights):
        if weight >= 0.005:
            colour = "white" if weight > 0.55 * darkest else plots.INK
            axes.text(column, row, number(weight), ha="center", va="center", fontsize=7, color=colour)


def _cut_title(title: str) -> str:
    return plots.short(title, _LONGEST)


def _colour_labels(labels: Sequence[Any], items: Sequence[int], gold: Tensor) -> None:
    for text, at in zip(labels, items, strict=True):
        text.set(color=plots.GOLD if gold[at] else plots.INK, fontweight="bold" if gold[at] else "normal")
        text.set_parse_math(False)


def _plain(axes: Axes) -> None:
    axes.tick_params(length=0, labelsize=8, labelcolor=plots.INK)
    axes.spines[:].set_visible(False)
