"""Draws maps with matplotlib, which is imported only when it is needed, and used without its global state."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zoo.errors import DataError
from zoo.io import open_atomic_bytes
from zoo.maps.labelled_map import LabelledMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

GOLD = "#e08a00"
INK = "#1f2a44"
QUIET = "#7c8597"
_COLOURS = ("#ffffff", "#d7e3f4", "#8fb3dc", "#3f78b5", "#173a6d")
_FORBIDDEN = "#ececec"
_MOST_LABELS = 40
_MOST_NUMBERS = 100
_CELL = 0.3
"""Side of a cell in inches."""
_LONGEST = 10.0
"""Greatest length of a side of a map in inches."""
_SQUARE = 80
"""From so many rows or columns on, cells are not square."""
_BAR = 2.0
"""Height of the bars of totals, in cells."""


def heat_map(
    found: LabelledMap, *, head: int | None = None, title: str | None = None, totals: str | None = None
) -> Figure:
    """Draws a dense map: a row for each query (or step), a column for each key; darker cells have greater weights.

    Cells that are not permitted are grey, and gold cells are framed. A long axis shows only some of its labels.

    Args:
        found: The map.
        head: Number of a head. Default: the mean of all heads.
        title: Title of the picture. Default: the site and the head.
        totals: Name of the total weight of each key, which is drawn as bars below. Default: it is not drawn.
    """
    from matplotlib.figure import Figure

    if found.has_edges:
        raise ValueError(f"{found.site} has edges, which a heat map does not show; draw a neighbourhood")
    if found.is_gate:
        raise ValueError(f"{found.site} is a gate, which has no queries; lay it over its picture")
    pairs = found.pairs(head)
    shape = pairs.queries, len(found.labels["key"])
    cells = np.full(shape, np.nan, dtype=np.float32)
    cells[pairs.query.numpy(), pairs.key.numpy()] = pairs.weights.numpy()

    figure = Figure(figsize=_size(shape, totals is not None), layout="constrained", facecolor="white")
    axes = figure.subplots()
    highest, is_above = _scale(cells)
    image = axes.imshow(cells, cmap=colours(), vmin=0, vmax=highest, aspect="equal" if max(shape) < _SQUARE else "auto")
    _label(axes, found, shape)
    if totals is not None:
        _draw_totals(axes, np.nan_to_num(cells).sum(0), totals)
    if cells.size <= _MOST_NUMBERS and _cell(shape) == _CELL:
        _write_numbers(axes, cells, highest)
    if found.gold is not None and found.gold.any():
        _frame_gold(axes, found.gold.reshape(shape).numpy())
    bar = figure.colorbar(image, ax=axes, shrink=0.7, pad=0.02, extend="max" if is_above else "neither")
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=INK)
    bar.set_label("weight", color=QUIET, fontsize=9)
    which = "average of the heads" if head is None and found.heads != (0,) else f"head {head or 0}"
    figure.suptitle(short(title, 90) if title else f"{found.site}, {which}", fontsize=11, color=INK, parse_math=False)
    return figure


def colours() -> Colormap:
    """Returns the colour map of weights; cells that are not permitted are grey."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("weights", _COLOURS).with_extremes(bad=_FORBIDDEN)


def save(figure: Figure, path: Path | str, *, dpi: int = 150) -> None:
    """Writes a PNG."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic_bytes(path) as file:
            figure.savefig(file, dpi=dpi, format="png", metadata={"Software": None})
    except OSError as error:
        raise DataError(f"{path}: the picture cannot be written ({error.strerror or error})") from error


def short(label: str, longest: int = 18) -> str:
    """Shortens a label to one line of at most `longest` printable characters."""
    label = "".join(c if c.isprintable() else "·" for c in label) if label.strip() else repr(label)[1:-1] or "''"
    return label if len(label) <= longest else f"{label[: longest - 1]}…"


def _scale(cells: np.ndarray) -> tuple[float, bool]:
    """Returns the weight of the darkest colour, and whether there are greater weights.

    A large map may have a few queries with much greater weights, such as the first ones of a causal map, which have few
    keys. They would make all other cells pale.
    """
    by_query = np.nan_to_num(cells).max(1, initial=0.0)
    highest = float(by_query.max(initial=0.0)) or 1.0
    usual = float(np.quantile(by_query[by_query > 0], 0.95)) if (by_query > 0).any() else highest
    return (usual, True) if cells.size > _MOST_NUMBERS and 2 * usual < highest else (highest, False)


def _size(shape: tuple[int, int], has_totals: bool) -> tuple[float, float]:
    rows, columns = (min(max(n, 3) * _cell(shape), _LONGEST) for n in shape)
    return columns + 2.6, rows + 1.9 + (_BAR + 0.5) * _CELL * has_totals


def _cell(shape: tuple[int, int]) -> float:
    """Returns the side of a cell: square cells are smaller where the longer side would not fit."""
    return min(_CELL, _LONGEST / max(shape)) if 0 < max(shape) < _SQUARE else _CELL


def _label(axes: Axes, found: LabelledMap, shape: tuple[int, int]) -> None:
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    for axis, count, name, labels in (
        (axes.yaxis, shape[0], found.query_axes[-1], _query_labels(found)),
        (axes.xaxis, shape[1], "key", [short(label) for label in found.labels["key"]]),
    ):
        every = ceil(count / _MOST_LABELS)
        axis.set_ticks(range(0, count, every), labels=labels[::every], fontsize=8, color=INK)
        for text in axis.get_ticklabels():
            text.set_parse_math(False)
        noun = found.nouns.get(name, name)
        axis.set_label_text(noun if every == 1 else f"{noun} (one in {every} is named)", color=QUIET, fontsize=9)
    if max((len(text.get_text()) for text in axes.get_xticklabels()), default=0) > 2:
        for text in axes.get_xticklabels():
            text.set(rotation=55, ha="left", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _query_labels(found: LabelledMap) -> list[str]:
    labels = [short(label) for label in found.labels[found.query_axes[-1]]]
    if len(found.query_axes) == 1:
        return labels
    return [f"{short(step)}: {label}" for step in found.labels["step"] for label in labels]


def _write_numbers(axes: Axes, cells: np.ndarray, highest: float) -> None:
    for (row, column), weight in np.ndenumerate(cells):
        if weight >= 0.005:
            number = f"{weight:.2f}".removeprefix("0")
            colour = "white" if weight > 0.55 * highest else INK
            axes.text(column, row, number, ha="center", va="center", fontsize=7, color=colour)


def _draw_totals(axes: Axes, totals: np.ndarray, name: str) -> None:
    """Draws a bar below each column, and a line at 1."""
    rows = axes.get_ylim()[0]
    ground, most = rows + _BAR + 0.4, max(1.0, float(totals.max(initial=0.0)))
    axes.set_ylim(ground + 0.1, -0.5)
    axes.bar(range(len(totals)), -totals * _BAR / most, 0.7, ground, color=_COLOURS[3])
    axes.plot([-0.5, len(totals) - 0.5], [ground - _BAR / most] * 2, color=QUIET, linewidth=0.8, linestyle=":")
    axes.text(len(totals) - 0.4, ground - _BAR / most, "1", va="center", fontsize=7, color=QUIET)
    axes.text(-0.7, ground - _BAR / 2, name, ha="right", va="center", fontsize=8, color=QUIET)


def _frame_gold(axes: Axes, gold: np.ndarray) -> None:
    """Draws a frame around each region of adjacent gold cells."""
    from matplotlib.collections import LineCollection

    padded = np.pad(gold, 1)
    across = [[(c - 0.5, r - 0.5), (c + 0.5, r - 0.5)] for r, c in np.argwhere(padded[1:, 1:-1] != padded[:-1, 1:-1])]
    down = [[(c - 0.5, r - 0.5), (c - 0.5, r + 0.5)] for r, c in np.argwhere(padded[1:-1, 1:] != padded[1:-1, :-1])]
    frame = LineCollection(across + down, colors=GOLD, linewidths=1.8, capstyle="projecting", label="gold")
    frame.set_clip_on(False)
    axes.add_collection(frame, autolim=False)
    axes.legend(handles=[frame], loc="upper left", bbox_to_anchor=(0, -0.01), frameon=False, fontsize=9, borderpad=0)
