"""Shows in a page what a measured run prints at its end."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import NamedTuple

from measured import RESULTS, read_runs
from rich.console import Console

sys.path.insert(0, str(RESULTS.parent))

from zoo.config import compose
from zoo.training.summary import make_table


class Printed(NamedTuple):
    """A run that a page shows.

    Attributes:
        experiment: Its folder in results/; the first run is shown.
        headline: `Task.headline` of its model, whose import would take longer than all tables.
    """

    experiment: str
    headline: tuple[str, ...]


PRINTED = {
    "graphs": Printed("gat-planted_graph", ("accuracy", "f1_macro", "loss")),
    "vision": Printed("vit-planted_glimpse", ("accuracy", "top5_accuracy", "calibration_error", "loss")),
    "recommendation": Printed("sasrec-planted_sessions", ("ndcg@10", "hr@10", "mrr", "popularity_ndcg@10")),
    "documents": Printed("han-planted_reviews", ("accuracy", "f1_macro", "mae", "calibration_error", "loss")),
    "translation": Printed("nmt-planted_translation", ("bleu", "chrf", "perplexity", "loss")),
    "speech": Printed("las-planted_tones", ("cer", "wer", "perplexity", "loss")),
    "captioning": Printed("captioner-planted_scenes", ("bleu", "cider", "exact_match", "perplexity", "loss")),
    "answering": Printed("coattention-planted_questions", ("accuracy", "loss")),
}
"""Page -> the run whose output it shows."""


def printed(experiment: str, headline: tuple[str, ...]) -> Iterator[str]:
    """Makes the command of an experiment's first run, with its time, and the table that it prints."""
    run = read_runs(experiment)[0]
    composed = compose.compose(run["command"].split()[2:])
    clock, kind = ("cpu_seconds", "processor time") if "cpu_seconds" in run else ("seconds", "training")
    yield "```console"
    yield f"$ {run['command']}   # {run[clock]:.0f} seconds of {kind}"
    paper = Console(width=120, file=io.StringIO())
    with paper.capture() as captured:
        paper.print(make_table(composed["names"], run, headline))
    yield from (line.rstrip() for line in captured.get().rstrip().splitlines())
    yield "```"
