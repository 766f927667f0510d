"""Negatives: exactly the items that a user has not chosen, all equally likely."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recommendation_cases import numbers, users
from torch import Tensor

from zoo.errors import DataError
from zoo.tasks.recommendation.batch import UNKNOWN
from zoo.tasks.recommendation.sampling import Distribution, NegativeSampler


@settings(max_examples=25)
@given(
    st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.sets(st.integers(0, n - 1)), min_size=1)))
)
def test_the_unseen_items_are_numbered_in_order(case):
    items, seen = case
    unseen = NegativeSampler.from_batch(users([[0]] * len(seen), items=items, seen=[sorted(each) for each in seen]))
    for user, each in enumerate(seen):
        left = [item for item in range(items) if item not in each]
        assert unseen.left[user] == len(left)
        assert unseen.select(torch.full((len(left),), user), torch.arange(len(left))).tolist() == left
        had = unseen.has_seen(torch.full((items,), user), torch.arange(items))
        assert had.tolist() == [item in each for item in range(items)]


def test_draws_are_uniform_over_what_a_user_has_not_seen():
    seen = [[0, 1, 2, 5, 9], [], [3], [0, 19], list(range(19))]
    unseen = NegativeSampler.from_batch(users([[0]] * len(seen), items=20, seen=seen))
    torch.manual_seed(0)
    drawn = unseen.draw(numbers([4, 3, 2, 1, 0, 0]), 8000)
    assert drawn.shape == (6, 8000)
    for row, user in enumerate([4, 3, 2, 1, 0, 0]):
        chances = torch.tensor([float(item not in seen[user]) for item in range(20)])
        assert is_drawn_from(drawn[row], chances / chances.sum())
    assert not drawn[4].equal(drawn[5])  # each position draws for itself


def test_large_numbers_of_items_are_all_drawn_equally():
    """With float32 random numbers in 0..1, items from 2^24 on could not all be drawn."""
    items = 50_000_000
    unseen = NegativeSampler(numbers([7]), numbers([1]), items)
    torch.manual_seed(1)
    drawn = unseen.draw(numbers([0]), 20_000)
    assert is_drawn_from(drawn[0] % 10, torch.full((10,), 0.1))
    assert is_drawn_from(drawn[0] * 10 // items, torch.full((10,), 0.1))


def test_the_row_of_unknown_items_is_never_drawn():
    batch = users([[0], [0]], items=4, seen=[[0, 3], [1]], names=["a", "b", "c", UNKNOWN])
    drawn = NegativeSampler.from_batch(batch).draw(numbers([0, 1]), 200)
    assert set(drawn[0].tolist()) == {1, 2}
    assert set(drawn[1].tolist()) == {0, 2}


def test_a_user_who_has_chosen_everything_is_named_in_an_error():
    with pytest.raises(DataError, match="user 1 of a batch has chosen all 3 items"):
        NegativeSampler.from_batch(users([[0], [0]], items=3, seen=[[0], [0, 1, 2]])).draw(numbers([0]), 1)


COUNTS = [0, 50, 3, 3, 20, 1]


@pytest.mark.parametrize(
    ("shape", "weights"),
    [
        ("uniform", [1.0] * 6),
        ("popularity", [1.0, 51, 4, 4, 21, 2]),
        ("log_uniform", [7 / 6, 2 / 1, 4 / 3, 5 / 4, 3 / 2, 6 / 5]),  # ranks 5, 0, 2, 3, 1, 4
    ],
)
def test_items_are_drawn_by_the_shape_of_their_counts(shape, weights):
    chances = torch.tensor(weights, dtype=torch.float64)
    chances = chances.log() if shape == "log_uniform" else chances
    chances = chances / chances.sum()
    distribution = Distribution(numbers(COUNTS), shape)
    torch.testing.assert_close(distribution.log_p.double(), chances.log())
    torch.manual_seed(2)
    assert is_drawn_from(distribution.draw(20_000), chances)
    expected = distribution.log_expected(numbers([1, 1, 4])).exp().double()
    torch.testing.assert_close(expected, 3 * chances[[1, 1, 4]])


def is_drawn_from(drawn: Tensor, chances: Tensor) -> bool:
    """Chi-square test at four standard deviations; items with probability 0 must not occur."""
    found = drawn.bincount(minlength=len(chances)).double()
    possible = chances > 0
    expected = chances[possible].double() * len(drawn)
    statistic = ((found[possible] - expected) ** 2 / expected).sum()
    freedom = int(possible.sum()) - 1
    return not found[~possible].any() and float(statistic) <= freedom + 4 * (2 * freedom) ** 0.5
