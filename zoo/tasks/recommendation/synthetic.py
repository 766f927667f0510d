"""Generated sessions in which it is known which past item decides the next one.

Each item has a hidden distance and a hidden partner; the partners are a random permutation of all items. The distance
of the last item selects an earlier item of the session, and the partner of that item comes next. After a, b, c, d,
where d has the distance 2, the partner of b comes next. With probability `noise`, and where the session is too short
for the distance, the next item is drawn at random.

All items are drawn from the same distribution, and each of them decides at some position. The set of a session's items
says next to nothing about the next item: the partners of the last `reach` items are equally likely. A model has to
attend from the last item to the position that only this item determines.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from zoo.data.size_limits import check_numbers
from zoo.errors import ConfigError
from zoo.tasks.recommendation.data.interaction_log import Log
from zoo.types import PositiveInt, Probability, Seed, validate_ranges

_HELD_OUT = {"val": 2, "test": 1}
"""Distance of the held-out item of each split from the end of a session."""


@validate_ranges
def plant(
    *,
    users: PositiveInt = 16_000,
    items: PositiveInt = 200,
    reach: PositiveInt = 10,
    shortest: PositiveInt = 20,
    longest: PositiveInt = 30,
    noise: Probability = 0.2,
    seed: Seed = 0,
) -> Log:
    """Generates sessions; equal arguments give equal sessions.

    Args:
        users: Number of sessions.
        items: Number of items.
        reach: Largest distance of an item; distances from 1 to `reach` are about equally frequent.
        shortest: Minimum number of items of a session, including the two that are held out.
        longest: Maximum number of items of a session; all lengths are equally likely.
        noise: Probability that an item is drawn at random instead of by the rule.
        seed: Seed of the random generator.
    """
    _check(users, items, reach, shortest, longest)
    random = np.random.default_rng(seed)
    partner = random.permutation(items)
    back = random.permutation(np.arange(items) % reach) + 1
    lengths = random.integers(shortest, longest + 1, size=users)

    # Each step adds one position to all sessions; positions after the end of a session are cut off afterwards.
    chosen = random.integers(items, size=(users, longest))
    is_any = random.random((users, longest)) < noise
    gold = np.full((users, longest), -1, dtype=np.int32)
    rows = np.arange(users)
    for position in range(1, longest):
        far = back[chosen[:, position - 1]]
        known = far < position
        decided = partner[chosen[rows, np.where(known, position - 1 - far, 0)]]
        ruled = known & ~is_any[:, position]
        chosen[ruled, position] = decided[ruled]
        # An item drawn at random may be the one that the rule gives.
        gold[:, position - 1] = np.where(known & (chosen[:, position] == decided), far, -1)

    inside = np.arange(longest) < lengths[:, None]
    ends = np.cumsum(lengths)
    gold = gold[inside]
    gold[ends - 1] = -1  # the next item was cut off
    names = [f"item {number}" for number in range(items)]
    return Log(
        items=chosen[inside].astype(np.int32),
        offsets=np.concatenate([[0], ends]),
        item_names=names,
        user_names=[f"user {number}" for number in range(users)],
        gold=gold,
        titles=[f"{name} ({far} back)" for name, far in zip(names, back.tolist(), strict=True)],
    )


def limit(log: Log, split: Literal["val", "test"]) -> float:
    """Computes the HR@1 of a model that knows the rule: the share of held-out items that follow it."""
    assert log.gold is not None
    return float((log.gold[log.offsets[1:] - 1 - _HELD_OUT[split]] >= 0).mean())


def _check(users: int, items: int, reach: int, shortest: int, longest: int) -> None:
    check_numbers(users * longest + items, f"data.users={users}, data.longest={longest} and data.items={items}")
    if reach > items:
        raise ConfigError(
            f"data.reach={reach}: write a whole number from 1 to data.items={items}, so that an item has each distance."
        )
    if shortest < reach + 3:  # the item before the two held-out ones may have the largest distance
        raise ConfigError(
            f"data.shortest={shortest}: with data.reach={reach} a session needs {reach + 3} items or more."
        )
    if longest < shortest:
        raise ConfigError(f"data.longest={longest}: write a number not below data.shortest={shortest}.")
