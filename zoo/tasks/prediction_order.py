"""Rows of examples, in the order of the examples, whatever batches a loader makes of them; and tables of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import torch

from zoo.data.loader import Loader
from zoo.tasks.base import EXAMPLE

if TYPE_CHECKING:
    import pandas as pd

_AT_ONCE = 256
"""Rows of a piece of a table."""


@torch.inference_mode()
def iter_examples(
    answer: Callable[[Any], dict[str, list[Any]]], loader: Loader, tick: Callable[[int], object] = lambda count: None
) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of each example, in the order of the examples.

    A loader that makes batches by length takes examples from a part of the order, so that few rows have to wait for
    those before them. If one entry of the loader has several rows without a column `EXAMPLE`, as a graph has nodes,
    each of them is an example.

    Args:
        answer: Returns the columns of a batch.
        loader: The batches.
        tick: Called with the number of entries of each batch that is answered.
    """
    waiting: dict[int, list[list[dict[str, Any]]]] = {}
    following = iter(sorted(loader.order(0)))
    number = next(following, None)
    for numbers, batch in loader.iter_with_indices():
        columns = answer(batch)
        tick(len(numbers))
        owners = columns.pop(EXAMPLE, None)
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        if owners is not None or len(numbers) > 1:
            examples: list[list[dict[str, Any]]] = [[] for _ in numbers]
            for owner, row in zip(range(len(rows)) if owners is None else owners, rows, strict=True):
                examples[owner].append(row)
            waiting |= {at: [example] for at, example in zip(numbers, examples, strict=True)}
        else:
            waiting[numbers[0]] = [[row] for row in rows]
        while number in waiting:
            yield from waiting.pop(number)
            number = next(following, None)


def iter_rows(answer: Callable[[Any], dict[str, list[Any]]], loader: Loader) -> Iterator[dict[str, Any]]:
    """Yields the rows of all examples in the order of the examples."""
    return chain.from_iterable(iter_examples(answer, loader))


def to_frames(rows: Iterable[dict[str, Any]]) -> Iterator[pd.DataFrame]:
    """Yields rows as pieces of a table."""
    import pandas as pd

    rows = iter(rows)
    while piece := list(islice(rows, _AT_ONCE)):
        yield pd.DataFrame(piece)


def spread(numbers: Sequence[int], count: int) -> list[int]:
    """Returns at most `count` of the numbers, at equal distances, since data may be sorted."""
    count = min(count, len(numbers))
    return [int(numbers[place * len(numbers) // count]) for place in range(count)]
