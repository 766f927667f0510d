"""The fast tier's share of a product has every two values together."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from tiers import cover_pairs


@pytest.mark.parametrize("sizes", [(10, 5, 7), (10, 5, 4, 2), (2, 3, 2), (1, 4, 1)])
def test_every_two_values_stand_together(sizes: tuple[int, ...]) -> None:
    chosen = cover_pairs(sizes)
    for one, other in combinations(range(len(sizes)), 2):
        assert {(case[one], case[other]) for case in chosen} == set(product(range(sizes[one]), range(sizes[other])))
    assert len(chosen) <= 2 * max(sizes[one] * sizes[other] for one, other in combinations(range(len(sizes)), 2))
