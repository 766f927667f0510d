"""Shows in a page what a measured run prints at its end."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

from measured import RESULTS, read_runs
from rich.console import Console

sys.path.insert(0, str(RESULTS.parent))

from zoo.config import compose, instantiate
from zoo.training.summary import make_table


def printed(experiment: str) -> Iterator[str]:
    """Makes the command of an experiment's first run, with its time, and the table that it prints.

    Args:
        experiment: A folder of results, whose runs name nothing but options of `train.py`.
    """
    run = read_runs(experiment)[0]
    composed = compose.compose(run["command"].split()[2:])
    headline = instantiate.resolve_class(composed["model"]["_target_"], "model").headline
    clock, kind = ("cpu_seconds", "processor time") if "cpu_seconds" in run else ("seconds", "training")
    yield "```console"
    yield f"$ {run['command']}   # {run[clock]:.0f} seconds of {kind}"
    paper = Console(width=120, file=io.StringIO())
    with paper.capture() as captured:
        paper.print(make_table(composed["names"], run, headline))
    yield from (line.rstrip() for line in captured.get().rstrip().splitlines())
    yield "```"
