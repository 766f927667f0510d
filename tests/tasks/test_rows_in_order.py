"""Rows are in the order of the examples, whichever batches a loader makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from zoo.data.loader import POOL, Loader
from zoo.tasks.base import EXAMPLE
from zoo.tasks.prediction_order import iter_rows

LENGTHS = [(number * 37) % 101 for number in range(1000)]


def bucketed(**options: Any) -> Loader:
    return Loader(range(1000), collate=list, lengths=LENGTHS, **options)


def written(answer: Any, loader: Loader) -> list[Any]:
    return [row["number"] for row in iter_rows(answer, loader)]


@pytest.mark.parametrize("options", [{"batch_size": 3}, {"batch_size": 7, "shuffle": True}, {"batch_size": 1}])
def test_whatever_the_order_of_the_loader(options: dict[str, Any]) -> None:
    loader = bucketed(**options)
    assert loader.order(0) != list(range(1000)) or options["batch_size"] == 1
    assert written(lambda batch: {"number": batch}, loader) == list(range(1000))


def test_examples_of_several_rows_and_of_none() -> None:
    def answer(batch: list[int]) -> dict[str, list[Any]]:
        at = [place for place, number in enumerate(batch) for _ in range(number % 4)]
        return {EXAMPLE: at, "number": [batch[place] for place in at]}

    expected = [number for number in range(1000) for _ in range(number % 4)]
    assert written(answer, bucketed(batch_size=8)) == expected


def test_an_example_that_is_a_batch_has_all_its_rows() -> None:
    loader = Loader(["a", "b"], collate=lambda found: found[0])
    assert written(lambda batch: {"number": [batch] * 3}, loader) == ["a"] * 3 + ["b"] * 3


def test_no_more_wait_than_a_loader_sorts_together() -> None:
    taken = []

    def answer(batch: list[int]) -> dict[str, list[Any]]:
        taken.extend(batch)
        return {"number": batch}

    rows: Iterator[dict[str, Any]] = iter_rows(answer, bucketed(batch_size=2))
    assert max(len(taken) - count for count, _ in enumerate(rows)) <= 2 * POOL
