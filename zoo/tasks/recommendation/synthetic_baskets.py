"""Generated baskets in which it is known which past item makes a candidate likely.

The items form a circle in a hidden random order; the next item in the circle is an item's *partner*. A basket begins
with items drawn at random. Each further step draws, uniformly, an item of the basket whose partner is not in it yet,
and adds the partner; with probability `noise` it adds a random item instead. No item is in a basket twice.

Whether a candidate is likely therefore depends on one past item, at any position: the item whose partner it is. A model
that reduces a history to one vector has to encode the partners of all its items, a dozen at a time. A model that
attends to the history for each candidate only needs to find that one item. The frequencies of items and the order of a
basket say next to nothing.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from zoo.data.size_limits import check_numbers
from zoo.errors import ConfigError
from zoo.tasks.recommendation.data.interaction_log import Log
from zoo.types import PositiveInt, Probability, Seed, validate_ranges


@validate_ranges
def fill(
    *,
    users: PositiveInt = 16_000,
    items: PositiveInt = 500,
    first: PositiveInt = 10,
    size: PositiveInt = 32,
    noise: Probability = 0.2,
    seed: Seed = 0,
) -> Log:
    """Generates baskets, one for each user; equal arguments give equal baskets.

    Args:
        users: Number of baskets.
        items: Number of items.
        first: Number of items of a basket that are drawn at random before the rule applies.
        size: Number of items of a basket, including the two that are held out.
        noise: Probability that an item is drawn at random instead of by the rule.
        seed: Seed of the random generator.
    """
    _check(users, items, first, size)
    random = np.random.default_rng(seed)
    partner = _circle(items, random)

    # Each step adds one item to all baskets.
    chosen = np.zeros((users, size), dtype=np.int64)
    chosen[:, :first] = random.random((users, items)).argpartition(first - 1, 1)[:, :first]
    chosen[:, :first] = random.permuted(chosen[:, :first], axis=1)
    inside = np.zeros((users, items), dtype=bool)
    rows = np.arange(users)[:, None]
    inside[rows, chosen[:, :first]] = True
    for position in range(first, size):
        waits = ~inside[rows, partner[chosen[:, :position]]]
        source = _any_of(waits, random)
        is_any = random.random(users) < noise
        found = np.where(is_any, _any_of(~inside, random), partner[chosen[rows[:, 0], source]])
        chosen[:, position] = found
        inside[rows[:, 0], found] = True

    names = [f"item {number}" for number in range(items)]
    return Log(
        items=chosen.astype(np.int32).ravel(),
        offsets=np.arange(users + 1, dtype=np.int64) * size,
        item_names=names,
        user_names=[f"basket {number}" for number in range(users)],
        gold=_gold(chosen, partner).ravel(),
        titles=[f"{name} (before item {after})" for name, after in zip(names, partner.tolist(), strict=True)],
    )


def _circle(items: int, random: np.random.Generator) -> Int[np.ndarray, " items"]:
    """Returns the partner of each item.

    In a single circle every basket that lacks an item has an item whose partner is missing.
    """
    order = random.permutation(items)
    partner = np.empty(items, dtype=np.int64)
    partner[order] = np.roll(order, -1)
    return partner


def _any_of(allowed: Bool[np.ndarray, "u n"], random: np.random.Generator) -> Int[np.ndarray, " u"]:
    """Draws the index of one allowed entry of each row, uniformly."""
    found: np.ndarray = ((1 - random.random(allowed.shape, dtype=np.float32)) * allowed).argmax(1)  # above 0, up to 1
    return found


def _gold(chosen: Int[np.ndarray, "u n"], partner: Int[np.ndarray, " items"]) -> Int[np.ndarray, "u n"]:
    """Returns the distance from each position back to the item whose partner comes next; -1 where there is none."""
    users, size = chosen.shape
    gold = np.full((users, size), -1, dtype=np.int32)
    for position in range(size - 1):
        calls = partner[chosen[:, : position + 1]] == chosen[:, position + 1 : position + 2]
        gold[:, position] = np.where(calls.any(1), position - calls.argmax(1), -1)
    return gold


def _check(users: int, items: int, first: int, size: int) -> None:
    check_numbers(users * (items + size), f"data.users={users}, data.items={items} and data.size={size}")
    if size < first + 3:  # one is learned, two are held out
        raise ConfigError(f"data.size={size}: with data.first={first} a basket needs {first + 3} items or more.")
    if items <= size:
        raise ConfigError(f"data.items={items}: write more than data.size={size}, as no item is twice in a basket.")
