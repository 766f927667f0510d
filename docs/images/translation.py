"""Draws translation-bottleneck.png: BLEU by length, and how much of a gradient arrives, of several folders of maps.

python docs/images/translation.py additive=maps/additive none=maps/none
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from zoo.maps import plots

_COLOURS = ("#3f78b5", plots.GOLD, plots.QUIET)


def main(arguments: list[str]) -> None:
    folders = dict(each.split("=", 1) for each in arguments)
    figure = Figure(figsize=(9.6, 3.4), layout="constrained", facecolor="white")
    lengths, reach = figure.subplots(1, 2)
    for colour, (name, folder) in zip(_COLOURS, folders.items(), strict=False):
        table = pd.read_csv(Path(folder) / "bleu_by_length.csv")
        lengths.plot(table["source words"], table["bleu"], marker="o", color=colour, label=f"attention={name}")
        arrived = pd.read_csv(Path(folder) / "gradients.csv")
        arrived = arrived[arrived["origins"] > 0]
        reach.plot(arrived["distance"], arrived["gradient_of_origin"], color=colour, label=f"attention={name}")
    lengths.set(ylim=(0, 103), xlabel="words of the source", ylabel="BLEU")
    reach.set(
        yscale="log", xlabel="steps from reading a word to writing its translation", ylabel="norm of the gradient"
    )
    for axes in (lengths, reach):
        axes.tick_params(which="both", length=0, labelsize=8, labelcolor=plots.INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    plots.save(figure, Path(__file__).with_name("translation-bottleneck.png"), dpi=110)


if __name__ == "__main__":
    main(sys.argv[1:])
