"""Sessions that were made, so that it is known which past item decides the next one.

Every item is a cue: it says how far back the item lies that decides what comes next, which is the partner of that item
in a fixed pairing, a random permutation of all items. So after a, b, c, d, where d says "2 back", comes the partner of
b. Neither how far an item points nor its partner can be seen on it. With probability `noise` the next item is any,
as it is where a session is too short to look so far back.

The items between are drawn from the same distribution as the one that decides, and each decides at another time.
Which items a session has, without their order, says next to nothing of the next one: the partner of each of the last
`reach` items is as likely. A model must look from the last item to a place that this item alone names.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from zoo.attention.ranges import Count, Rate, Seed
from zoo.data.generated import check_numbers
from zoo.errors import ConfigError
from zoo.tasks.recommendation.data.log import Log

_HELD_OUT = {"val": 2, "test": 1}
"""How far from the end of a session the item stands that is to be ranked."""


def plant(
    *,
    users: Count = 16_000,
    items: Count = 200,
    reach: Count = 10,
    shortest: Count = 20,
    longest: Count = 30,
    noise: Rate = 0.2,
    seed: Seed = 0,
) -> Log:
    """Makes sessions; equal arguments give equal sessions.

    Args:
        users: How many sessions there are.
        items: How many items there are.
        reach: Items point 1 to so many positions back, about as many to each distance.
        shortest: Items of a session, the two that are held out among them, at least.
        longest: At most; all lengths are as likely.
        noise: Probability that an item is any, whatever the one before it says.
        seed: The seed of everything random here.
    """
    _check(users, items, reach, shortest, longest, noise)
    random = np.random.default_rng(seed)
    partner = random.permutation(items)
    back = random.permutation(np.arange(items) % reach) + 1
    lengths = random.integers(shortest, longest + 1, size=users)

    # One more position a step, of all users at once; what lies behind a session's end is cut off afterwards.
    chosen = random.integers(items, size=(users, longest))
    is_any = random.random((users, longest)) < noise
    gold = np.full((users, longest), -1, dtype=np.int32)
    rows = np.arange(users)
    for place in range(1, longest):
        far = back[chosen[:, place - 1]]
        known = far < place
        decided = partner[chosen[rows, np.where(known, place - 1 - far, 0)]]
        ruled = known & ~is_any[:, place]
        chosen[ruled, place] = decided[ruled]
        # An item drawn at random may be the right one too.
        gold[:, place - 1] = np.where(known & (chosen[:, place] == decided), far, -1)

    inside = np.arange(longest) < lengths[:, None]
    ends = np.cumsum(lengths)
    gold = gold[inside]
    gold[ends - 1] = -1  # what would have come next was cut off
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
    """HR@1 of who knows the pairing and how far each item points: the share of held-out items that were not any."""
    assert log.gold is not None
    return float((log.gold[log.offsets[1:] - 1 - _HELD_OUT[split]] >= 0).mean())


def _check(users: int, items: int, reach: int, shortest: int, longest: int, noise: float) -> None:
    if users < 1:
        raise ConfigError(f"data.users={users}: write a whole number from 1.")
    check_numbers(users * longest + items, f"data.users={users}, data.longest={longest} and data.items={items}")
    if not 1 <= reach <= items:
        raise ConfigError(
            f"data.reach={reach}: write a whole number from 1 to data.items={items}, so that one points so far."
        )
    if shortest < reach + 3:  # the item before the two that are held out may point farthest
        raise ConfigError(
            f"data.shortest={shortest}: with data.reach={reach} a session needs {reach + 3} items or more."
        )
    if longest < shortest:
        raise ConfigError(f"data.longest={longest}: write a number not below data.shortest={shortest}.")
    if not 0 <= noise < 1:
        raise ConfigError(f"data.noise={noise}: write a probability from 0, below 1.")
