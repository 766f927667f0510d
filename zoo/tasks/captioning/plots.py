"""A contact sheet: the picture once for each word of its caption, with the place that the word was made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from zoo.maps import plots
from zoo.tasks.vision.batch import Picture
from zoo.tasks.vision.plots import Box, draw_bar, largest_weight, overlay

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ACROSS = 5
_MOST = 29
"""Words that are drawn at most."""
_PANEL = 1.8
"""Width of a panel in inches."""


@dataclass(frozen=True, eq=False)
class WordPlace:
    """A word and where it looks.

    Args:
        word: The word.
        heat: Weights of the cells.
        gold: Pixels that it speaks of; None if they are not known.
    """

    word: str
    heat: Float[Tensor, "rows columns"]
    gold: Bool[Tensor, "h w"] | None = None


def contact_sheet(
    pixels: UInt8[Tensor, "3 h w"], places: Sequence[WordPlace], *, seen: Box, title: str, name: str = "picture"
) -> Figure:
    """Draws the picture, and after it one panel for each word, at the picture's own proportions and on one scale.

    Args:
        pixels: The picture in its own size.
        places: The words.
        seen: The part of the picture that the net sees.
        title: The caption.
        name: Name of the picture.
    """
    from matplotlib.figure import Figure

    shown = list(places[:_MOST])
    shape = min(max(pixels.shape[1] / pixels.shape[2], 0.4), 2.0)
    rows = ceil((len(shown) + 1) / _ACROSS)
    figure = Figure(
        figsize=(_ACROSS * _PANEL + 0.6, rows * (_PANEL * shape + 0.28) + 0.5), layout="constrained", facecolor="white"
    )
    figure.suptitle(plots.short(title, 90), fontsize=11, color=plots.INK, parse_math=False)
    panels = figure.subplots(rows, _ACROSS, squeeze=False).flatten()
    for axes in panels:
        axes.set_axis_off()
    overlay(panels[0], Picture(pixels, -1, name, ""), None)
    panels[0].set_title(plots.short(name, 24), fontsize=8, color=plots.QUIET, pad=2, parse_math=False)
    greatest, image = largest_weight([each.heat for each in shown]), None
    for axes, each in zip(panels[1:], shown, strict=False):
        gold = None if each.gold is None else torch.as_tensor(each.gold)
        image = overlay(axes, Picture(pixels, -1, name, "", gold), each.heat, seen=seen, greatest=greatest)
        axes.set_title(plots.short(each.word, 20), fontsize=9, color=plots.INK, pad=2, parse_math=False)
    if image is not None:
        draw_bar(figure, image, list(panels), "weight of a cell")
    left_out = len(places) - len(shown)
    if left_out:
        figure.supxlabel(f"and {left_out} more words", fontsize=8, color=plots.QUIET)
    return figure
