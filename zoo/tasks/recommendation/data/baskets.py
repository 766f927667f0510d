"""Baskets that were made, so that it is known which past item makes a candidate likely.

All items stand in a circle, in a random order that is not known; the next one in it is an item's *partner*. A basket
begins with items drawn at random. Then, again and again, one of its items whose partner is not in it is drawn, all as
likely, and the partner is added; with probability `noise` it is any item instead. No item is in a basket twice.

So whether a candidate is likely depends on one past item, wherever that stands: the one whose partner it is. A history
that is reduced to one vector must tell which of all items it calls for, a dozen at a time; if each candidate reads the
history for itself, its own one is enough. Frequencies and the order of a basket say next to nothing.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from zoo.attention.ranges import Count, Rate, Seed
from zoo.data.generated import check_numbers
from zoo.errors import ConfigError
from zoo.tasks.recommendation.data.log import Log


def fill(
    *,
    users: Count = 16_000,
    items: Count = 500,
    first: Count = 10,
    size: Count = 32,
    noise: Rate = 0.2,
    seed: Seed = 0,
) -> Log:
    """Makes baskets, one a user; equal arguments give equal baskets.

    Args:
        users: How many baskets there are.
        items: How many items there are.
        first: Items of a basket that are drawn at random, before any is chosen by the rule.
        size: Items of a basket, the two that are held out among them.
        noise: Probability that an item is any, whatever is in the basket.
        seed: The seed of everything random here.
    """
    _check(users, items, first, size, noise)
    random = np.random.default_rng(seed)
    partner = _circle(items, random)

    # One more item a step, of all baskets at once.
    chosen = np.zeros((users, size), dtype=np.int64)
    chosen[:, :first] = random.random((users, items)).argpartition(first - 1, 1)[:, :first]
    chosen[:, :first] = random.permuted(chosen[:, :first], axis=1)
    inside = np.zeros((users, items), dtype=bool)
    rows = np.arange(users)[:, None]
    inside[rows, chosen[:, :first]] = True
    for place in range(first, size):
        waits = ~inside[rows, partner[chosen[:, :place]]]
        source = _any_of(waits, random)
        is_any = random.random(users) < noise
        found = np.where(is_any, _any_of(~inside, random), partner[chosen[rows[:, 0], source]])
        chosen[:, place] = found
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
    """The partner of each item. In one circle an item always waits, as no part of it is closed."""
    order = random.permutation(items)
    partner = np.empty(items, dtype=np.int64)
    partner[order] = np.roll(order, -1)
    return partner


def _any_of(allowed: Bool[np.ndarray, "u n"], random: np.random.Generator) -> Int[np.ndarray, " u"]:
    """One of the allowed places of each row, all as likely."""
    found: np.ndarray = ((1 - random.random(allowed.shape, dtype=np.float32)) * allowed).argmax(1)  # above 0, up to 1
    return found


def _gold(chosen: Int[np.ndarray, "u n"], partner: Int[np.ndarray, " items"]) -> Int[np.ndarray, "u n"]:
    """From each place, how many places back the item stands whose partner comes next; -1 where there is none."""
    users, size = chosen.shape
    gold = np.full((users, size), -1, dtype=np.int32)
    for place in range(size - 1):
        calls = partner[chosen[:, : place + 1]] == chosen[:, place + 1 : place + 2]
        gold[:, place] = np.where(calls.any(1), place - calls.argmax(1), -1)
    return gold


def _check(users: int, items: int, first: int, size: int, noise: float) -> None:
    if users < 1:
        raise ConfigError(f"data.users={users}: write a whole number from 1.")
    check_numbers(users * (items + size), f"data.users={users}, data.items={items} and data.size={size}")
    if first < 1:
        raise ConfigError(f"data.first={first}: write a whole number from 1.")
    if size < first + 3:  # one is learned, two are held out
        raise ConfigError(f"data.size={size}: with data.first={first} a basket needs {first + 3} items or more.")
    if items <= size:
        raise ConfigError(f"data.items={items}: write more than data.size={size}, as no item is twice in a basket.")
    if not 0 <= noise < 1:
        raise ConfigError(f"data.noise={noise}: write a probability from 0, below 1.")
