"""Shows the progress of `zoo predict` and `zoo evaluate` as a bar, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_REFRESHES_PER_SECOND = 4
"""Drawings of the bar a second."""


@contextmanager
def bar(description: str, total: int | None, *, is_shown: bool = True) -> Iterator[Callable[[int], object]]:
    """Shows a bar on standard error if this is a terminal, and removes it at the end of the context.

    Args:
        description: A word for what is done.
        total: Number of all parts; None: it is not known.
        is_shown: Whether there is a bar at all.

    Yields:
        A function that is told how many parts more are done.
    """
    console = Console(stderr=True)
    if not is_shown or not sys.stderr.isatty() or console.is_dumb_terminal:
        yield lambda count: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, refresh_per_second=_REFRESHES_PER_SECOND) as progress:
        task = progress.add_task(description, total=total)
        yield lambda count: progress.advance(task, count)


class EvaluationBar(pl.Callback):
    """Tells a bar of the batches of an evaluation.

    Args:
        tick: Called with the number of batches after each.
    """

    def __init__(self, tick: Callable[[int], object]) -> None:
        self.tick = tick

    def on_test_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self.tick(1)
