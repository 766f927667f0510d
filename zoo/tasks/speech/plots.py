"""The picture of an alignment: the features of a recording over time, and below them its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from jaxtyping import Float, Int
from torch import Tensor

from zoo.maps import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TOKENS = 60
"""Of more tokens only some are named."""


def aligned_figure(
    features: Float[Tensor, "t f"],
    weights: Float[Tensor, "n k"],
    tokens: Sequence[str],
    *,
    title: str,
    hop: float,
    stride: int,
    spans: Int[Tensor, "n 2"] | None = None,
) -> Figure:
    """Draws features above an alignment, with one axis of time for both.

    Args:
        features: A row for each frame.
        weights: Weight of each place at the step of each token.
        tokens: The tokens.
        title: Title of the picture.
        hop: Seconds from one frame to the next.
        stride: Number of frames of a place; the last one may have fewer.
        spans: Gold frames of each token, which are framed.
    """
    from matplotlib.figure import Figure

    frames, seconds = len(features), len(features) * hop
    rows = min(max(len(tokens), 4), _MOST_TOKENS)
    width = min(max(4.5, 3.0 * seconds), 14.0)
    figure = Figure(figsize=(width + 1.6, 2.0 + 0.17 * rows + 1.1), layout="constrained", facecolor="white")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2.0, 0.17 * rows])
    above.imshow(
        features.T.numpy(), origin="lower", aspect="auto", cmap="Greys", extent=(0, seconds, 0, features.shape[1])
    )
    above.set_ylabel("feature", color=plots.QUIET, fontsize=9)
    places = weights.shape[1] * stride * hop
    image = below.imshow(
        weights.numpy(),
        aspect="auto",
        cmap=plots.colours(),
        vmin=0,
        vmax=max(1e-9, float(weights.max())) if weights.numel() else 1.0,
        extent=(0, places, max(1, len(tokens)) - 0.5, -0.5),
        interpolation="nearest",
    )
    below.set_xlim(0, frames * hop)
    every = max(1, ceil(len(tokens) / _MOST_TOKENS))
    below.set_yticks(
        range(0, len(tokens), every), labels=[plots.short(each, 12) for each in tokens[::every]], fontsize=8
    )
    below.set_ylabel("token", color=plots.QUIET, fontsize=9)
    below.set_xlabel("seconds", color=plots.QUIET, fontsize=9)
    for axes in (above, below):
        axes.tick_params(length=0, labelsize=8, labelcolor=plots.INK)
        axes.spines[:].set_visible(False)
        for label in axes.get_yticklabels():
            label.set_parse_math(False)
    if spans is not None:
        _frame(below, spans, hop)
    bar = figure.colorbar(image, ax=below, pad=0.01, fraction=0.03)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=plots.INK)
    bar.set_label("weight", color=plots.QUIET, fontsize=9)
    figure.suptitle(plots.short(title, 90), fontsize=11, color=plots.INK, parse_math=False)
    return figure


def _frame(axes: Axes, spans: Int[Tensor, "n 2"], hop: float) -> None:
    """Draws a frame around the gold frames of each token."""
    from matplotlib.patches import Rectangle

    for row, (start, end) in enumerate(spans.tolist()):
        if end > start:
            corner, size = (start * hop, row - 0.5), (end - start) * hop
            axes.add_patch(Rectangle(corner, size, 1.0, fill=False, edgecolor=plots.GOLD, linewidth=1.4, label="gold"))
    shown = axes.get_legend_handles_labels()[0][:1]
    if shown:
        axes.legend(handles=shown, loc="upper left", bbox_to_anchor=(0, -0.12), frameon=False, fontsize=8, borderpad=0)
