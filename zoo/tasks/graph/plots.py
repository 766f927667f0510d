"""Draws a node with the neighbours that it attends to."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.maps import describe, plots
from zoo.maps.labelled_map import LabelledMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLASS_COLOURS = ("#4f86c6", "#5fae74", "#c9607f", "#9474bd", "#45a8a8", "#a8795a", "#7286ad", "#a5ae4e", "#d08bbf")
_UNKNOWN = "#cfd4dc"
_OTHER_EDGE = "#4a5f86"
_WRITTEN = 8
"""Number of edges that are drawn with their weight as text."""


def neighbourhood(
    found: LabelledMap,
    node: str,
    *,
    head: int | None = None,
    classes: Sequence[str] | None = None,
    most: int = 20,
    title: str | None = None,
) -> Figure:
    """Draws a node with the neighbours that it attends to, clockwise by falling weight from the top.

    Width and opacity of an edge show its weight, on the same scale in every picture. The heaviest edges also have it as
    text. The weight of the node's self-loop stands in the middle.

    Args:
        found: The map.
        node: Name of the node.
        head: Index of a head. Default: the average of all heads.
        classes: Class of each node, which sets its colour; "" if it is not known. Default: no colours.
        most: Maximum number of neighbours that are drawn; the caption counts the others.
        title: Title of the picture. Default: the site and the head.
    """
    from matplotlib.figure import Figure

    star = _star(found, node, head, most)
    colour = _colours(classes)
    figure = Figure(figsize=(7.2, 7.9), facecolor="white")
    axes = figure.add_axes((0.02, 0.1, 0.96, 0.78))
    axes.set_axis_off()
    axes.set(xlim=(-1.36, 1.36), ylim=(-1.22, 1.22), aspect="equal")
    radius = 0.12 if len(star.sources) <= 16 else 0.1
    for i, point in enumerate(_circle(len(star.sources))):
        source = int(star.sources[i])
        _draw_edge(axes, point, float(star.weights[i]), bool(star.gold[i]), is_written=i < _WRITTEN)
        _draw_node(axes, point, radius, found.labels["source"][source], colour(source))
    _draw_node(axes, np.zeros(2), 0.19, found.labels["target"][star.node], colour(star.node), own=star.own)

    which = f"{found.site}, {'average of the heads' if head is None else f'head {head}'}"
    described = textwrap.fill(describe.describe(found, star.node, head=head, noun="node", among="neighbour"), 78)
    figure.text(0.5, 0.965, title or which, ha="center", fontsize=10, color=plots.QUIET, parse_math=False)
    figure.text(0.5, 0.945, described, ha="center", va="top", fontsize=10.5, color=plots.INK, parse_math=False)
    figure.text(0.5, 0.018, star.caption, ha="center", fontsize=9, color=plots.QUIET)
    shown = {} if classes is None else {classes[i]: colour(i) for i in sorted({star.node, *star.sources.tolist()})}
    _legend(figure, shown, has_gold=found.gold is not None)
    return figure


@dataclass(frozen=True, eq=False)
class _Star:
    """The edges of a node that are drawn, heaviest first, and the number and total weight of the others."""

    node: int
    sources: np.ndarray
    weights: np.ndarray
    gold: np.ndarray
    own: float | None
    others: int
    others_weight: float

    @property
    def caption(self) -> str:
        count = len(self.sources)
        if not self.others:
            return f"all {count} neighbours" if count > 1 else f"{count or 'no'} neighbour"
        share = f"the other {self.others} share {describe.number(self.others_weight)}"
        return f"the {count} heaviest of {count + self.others} neighbours; {share}"


def _star(found: LabelledMap, node: str, head: int | None, most: int) -> _Star:
    pairs = found.pairs(head)
    position = found.position("target", node)
    at_node = (pairs.query == position).nonzero().flatten()
    is_own = (pairs.key[at_node] == position) & found.attends_to_itself
    own = float(pairs.weights[at_node[is_own]].sum()) if is_own.any() else None
    edges = at_node[~is_own]
    edges = edges[pairs.weights[edges].argsort(descending=True, stable=True)]
    drawn, rest = edges[:most], edges[most:]
    gold = np.zeros(len(drawn), dtype=bool) if pairs.gold is None else pairs.gold[drawn].numpy()
    sources, weights = pairs.key[drawn].numpy(), pairs.weights[drawn].numpy()
    return _Star(position, sources, weights, gold, own, len(rest), float(pairs.weights[rest].sum()))


def _circle(count: int) -> np.ndarray:
    """Returns equally spaced points on the unit circle, clockwise from the top."""
    angle = np.pi / 2 - 2 * np.pi * np.arange(count) / max(count, 1)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _colours(classes: Sequence[str] | None) -> Callable[[int], str]:
    known = sorted(set(classes or ()) - {""})

    def colour(node: int) -> str:
        if classes is None or not classes[node]:
            return _UNKNOWN
        return _CLASS_COLOURS[known.index(classes[node]) % len(_CLASS_COLOURS)]

    return colour


def _draw_edge(axes: Axes, point: np.ndarray, weight: float, is_gold: bool, *, is_written: bool) -> None:
    from matplotlib.lines import Line2D

    colour = plots.GOLD if is_gold else _OTHER_EDGE
    width, opacity = 1.0 + 15 * weight, min((0.5 if is_gold else 0.35) + 1.2 * weight, 1.0)
    xs, ys = [0.0, float(point[0])], [0.0, float(point[1])]
    axes.add_line(Line2D(xs, ys, color=colour, linewidth=width, alpha=opacity, solid_capstyle="butt", zorder=1))
    if is_written:
        x, y = point * 0.62
        box = {"boxstyle": "round,pad=0.18", "facecolor": "white", "edgecolor": colour, "linewidth": 0.8}
        number = describe.number(weight)
        axes.text(x, y, number, ha="center", va="center", fontsize=9, color=plots.INK, bbox=box, zorder=3)


def _draw_node(
    axes: Axes, point: np.ndarray, radius: float, label: str, colour: str, *, own: float | None = None
) -> None:
    """Draws a disc with the name of the node inside, or outside if the name is long."""
    from matplotlib.patches import Circle

    is_centre = not point.any()
    x, y = float(point[0]), float(point[1])
    axes.add_patch(Circle((x, y), radius, facecolor=colour, edgecolor="white", linewidth=2.5, zorder=2))
    ink = plots.INK if colour == _UNKNOWN else "white"
    style: dict[str, Any] = {"va": "center", "zorder": 4, "parse_math": False}
    if is_centre:
        name = plots.short(label, 9)
        lift = 0.0 if own is None else 0.045
        axes.text(0, lift, name, ha="center", color=ink, fontsize=min(13, 62 / len(name)), fontweight="bold", **style)
        if own is not None:
            axes.text(0, -0.06, f"itself {describe.number(own)}", ha="center", color=ink, fontsize=8.5, **style)
    elif len(label) <= 4:
        axes.text(x, y, plots.short(label), ha="center", color=ink, fontsize=9.5, **style)
    else:
        side = "center" if abs(x) < 0.25 else "left" if x > 0 else "right"
        away = point * (1 + radius + (0.06 if side == "center" else 0.03))
        axes.text(away[0], away[1], plots.short(label, 12), ha=side, color=plots.INK, fontsize=8.5, **style)


def _legend(figure: Figure, classes: Mapping[str, str], has_gold: bool) -> None:
    """Adds rows with the colours of classes and, if gold is known, a row with those of edges."""
    from matplotlib.lines import Line2D

    dot: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 9}
    dots = [
        Line2D([], [], color=colour, label=plots.short(name or "not known", 14), **dot)
        for name, colour in sorted(classes.items(), key=lambda item: (not item[0], item[0]))
    ]
    lines = [
        Line2D([], [], color=plots.GOLD, linewidth=4, label="where it should look (gold)"),
        Line2D([], [], color=_OTHER_EDGE, linewidth=4, alpha=0.6, label="other edge"),
    ]
    height = 0.04
    for handles in [lines] * has_gold + [dots[i : i + 6] for i in range(0, len(dots), 6)][:3][::-1]:
        figure.legend(
            handles=handles,
            loc="lower center",
            bbox_to_anchor=(0.5, height),
            ncols=len(handles),
            frameon=False,
            fontsize=9,
            labelcolor=plots.INK,
            borderpad=0.2,
        )
        height += 0.024
