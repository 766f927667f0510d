"""What of many combinations the fast tier tests; the slow tier has all of them.

`every_pair` is for three parameters and more, `each_once` for two, `all_slow_but` for a list of cases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest


def every_pair(**parameters: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrizes by every combination; those beyond a set in which any two values stand together are slow."""
    return _combined(parameters, cover_pairs)


def each_once(**parameters: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrizes by every combination; the fast tier has each value, that of the longest parameter once."""
    return _combined(parameters, lambda sizes: {tuple(at % size for size in sizes) for at in range(max(sizes))})


def all_slow_but(fast: Collection[Any], cases: Iterable[Any], name: Callable[[Any], Any] = lambda case: case) -> Any:
    """Lists cases for `parametrize`, of which those that are not named are slow."""
    return [pytest.param(case, marks=_marks_unless(name(case) in fast)) for case in cases]


def cover_pairs(sizes: Sequence[int]) -> set[tuple[int, ...]]:
    """Chooses combinations of indices, each the one with the most pairs that no earlier one has."""
    places = list(combinations(range(len(sizes)), 2))
    cases = list(product(*map(range, sizes)))
    pairs = {case: {(one, other, case[one], case[other]) for one, other in places} for case in cases}
    missing, chosen = set().union(*pairs.values()), set()
    while missing:
        best = max(cases, key=lambda case: len(pairs[case] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return chosen


def _combined(
    parameters: Mapping[str, Iterable[Any]], choose: Callable[[Sequence[int]], set[tuple[int, ...]]]
) -> pytest.MarkDecorator:
    values = [list(each.items()) if isinstance(each, Mapping) else _labelled(each) for each in parameters.values()]
    fast = choose([len(each) for each in values])
    cases = []
    for case in product(*(range(len(each)) for each in values)):
        chosen = [of[index] for of, index in zip(values, case, strict=True)]
        label = "-".join(label for label, _ in chosen)
        cases.append(pytest.param(*(value for _, value in chosen), id=label, marks=_marks_unless(case in fast)))
    return pytest.mark.parametrize(tuple(parameters), cases)


def _labelled(values: Iterable[Any]) -> list[tuple[str, Any]]:
    return [(value.stem if isinstance(value, Path) else str(value), value) for value in values]


def _marks_unless(is_fast: bool) -> list[pytest.MarkDecorator]:
    return [] if is_fast else [pytest.mark.slow]
