"""Rows of examples, in the order of the examples, whatever batches a loader makes of them; and tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from zoo.data.loader import Loader
from zoo.tasks.contract import EXAMPLE

if TYPE_CHECKING:
    import pandas as pd

_AT_ONCE = 256
"""Rows of a piece of a table."""


@torch.inference_mode()
def in_order(answer: Callable[[Any], dict[str, list[Any]]], loader: Loader) -> Iterator[dict[str, Any]]:
    """Yields the rows of each example in the order of the examples.

    A loader that makes batches by length takes examples from a part of the order, so that few rows have to wait for
    those before them.
    """
    waiting: dict[int, list[dict[str, Any]]] = {}
    following = iter(sorted(loader.order(0)))
    number = next(following, None)
    for numbers, batch in loader.numbered():
        columns = answer(batch)
        count = len(next(iter(columns.values())))
        alone = range(count) if len(numbers) > 1 else [0] * count
        for at in numbers:
            waiting[at] = []
        for place, *row in zip(columns.pop(EXAMPLE, alone), *columns.values(), strict=True):
            waiting[numbers[place]].append(dict(zip(columns, row, strict=True)))
        while number in waiting:
            yield from waiting.pop(number)
            number = next(following, None)


def in_pieces(rows: Iterable[dict[str, Any]]) -> Iterator[pd.DataFrame]:
    """Yields rows as pieces of a table."""
    import pandas as pd

    rows = iter(rows)
    while piece := list(islice(rows, _AT_ONCE)):
        yield pd.DataFrame(piece)


def spread(numbers: Sequence[int], count: int) -> list[int]:
    """Returns at most `count` of the numbers, at equal distances, since data may be sorted."""
    count = min(count, len(numbers))
    return [int(numbers[place * len(numbers) // count]) for place in range(count)]
