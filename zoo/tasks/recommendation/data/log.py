"""Who did what in which order, in arrays: sorted, filtered and numbered all at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Int32, Int64, Integer, Num

from zoo.errors import ConfigError, DataError, nearest, some_of
from zoo.tasks.recommendation.batch import UNKNOWN

Duplicates = Literal["keep", "drop"]
Rare = Literal["drop", "unknown"]
Unknown = Literal["error", "skip", "row"]

_COMPARED = 100_000
"""Names of so many items at most are searched for one that is meant."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Log:
    """The histories of all users.

    Args:
        items: Numbers of the items, user after user, oldest first.
        offsets: Where each user's items begin, and after the last one the end.
        item_names: Their ids, in the order of their numbers.
        user_names: Likewise.
        times: Of each item, in seconds.
        gold: How many positions back from each position lies what decides the next item; -1: not known.
        titles: What is shown for each item.
    """

    items: Int32[np.ndarray, " n"]
    offsets: Int64[np.ndarray, " o"]
    item_names: Sequence[str]
    user_names: Sequence[str]
    times: Int64[np.ndarray, " n"] | None = None
    gold: Int32[np.ndarray, " n"] | None = None
    titles: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if len(self.offsets) != len(self.user_names) + 1 or self.offsets[-1] != len(self.items):
            raise ValueError("offsets must have one entry more than there are users, and end with the number of items")
        if self.titles is not None and len(self.titles) != len(self.item_names):
            raise ValueError(f"{len(self.titles)} titles for {len(self.item_names)} items")

    @property
    def lengths(self) -> Int64[np.ndarray, " users"]:
        """How many items each user has."""
        return np.diff(self.offsets)


def make_log(
    users: Integer[np.ndarray, " n"],
    items: Integer[np.ndarray, " n"],
    times: Num[np.ndarray, " n"] | None = None,
    *,
    user_names: Sequence[str],
    item_names: Sequence[str],
    titles: Sequence[str] | None = None,
    min_user_items: int = 1,
    min_item_users: int = 1,
    duplicates: Duplicates = "keep",
    rare: Rare = "drop",
) -> Log:
    """Sorts, filters and numbers interactions in any order.

    Args:
        users: The user of each interaction, as a place in `user_names`.
        items: The item of each, as a place in `item_names`.
        times: Of each, in seconds; a user's are sorted by them, and stay in the order given where they are equal.
        user_names: Ids of the users.
        item_names: Ids of the items.
        titles: What is shown for the items.
        min_user_items: Users with fewer interactions are left out.
        min_item_users: Items with fewer interactions are rare. Both are repeated until nothing changes, as in the
            5-core sets (McAuley et al. 2015).
        duplicates: Whether an item that a user chose before is kept or dropped.
        rare: Rare items are dropped, or share the row `UNKNOWN`.
    """
    for name, least in (("min_user_items", min_user_items), ("min_item_users", min_item_users)):
        if least < 1:
            raise ConfigError(f"data.{name}={least}: write a whole number from 1")
    if UNKNOWN in item_names:
        raise DataError(f"an item is called {UNKNOWN!r}, as the row that unknown items share; give it another id")
    actions = _Actions(users.astype(np.int32, copy=False), items.astype(np.int32, copy=False), times).sorted()
    if duplicates == "drop":
        actions = actions.at(_first_choices(actions, len(item_names)))
    actions, shared = _core(actions, min_user_items, min_item_users, len(item_names), rare)
    if not len(actions.users):
        raise DataError(
            f"no user is left: data.min_user_items={min_user_items} and data.min_item_users={min_item_users} leave out "
            "all; lower them"
        )
    if len(actions.users) < len(users):
        log.info(
            "%s of %s actions are left out by the filters", f"{len(users) - len(actions.users):,}", f"{len(users):,}"
        )
    present = np.bincount(actions.items, minlength=len(item_names)) > 0
    own = np.flatnonzero(present & ~shared)
    number = np.full(len(item_names), len(own), dtype=np.int32)
    number[own] = np.arange(len(own))
    places = own.tolist()
    last = [UNKNOWN] if shared.any() else []
    users_left, offsets = _offsets(actions.users, len(user_names))
    return Log(
        items=number[actions.items],
        offsets=offsets,
        item_names=[item_names[place] for place in places] + last,
        user_names=[user_names[place] for place in users_left.tolist()],
        times=None if actions.times is None else actions.times.astype(np.int64, copy=False),
        titles=None if titles is None else [titles[place] for place in places] + [""] * len(last),
    )


def renumbered(
    histories: Log, vocabulary: Sequence[str], unknown: Unknown, *, titles: Sequence[str] | None = None
) -> Log:
    """The same histories in the numbers of a trained model's items.

    Args:
        histories: In numbers of their own.
        vocabulary: The ids of the model's items.
        unknown: What becomes of items that the model does not know: `error`; `skip` leaves them out, and users that
            have no other; `row` gives them the row `UNKNOWN`, which a model has that was trained with rare=unknown.
        titles: Of the model's items.
    """
    if list(histories.item_names) == list(vocabulary):
        return replace(histories, titles=titles)
    places = {name: place for place, name in enumerate(vocabulary)}
    number = np.array([places.get(name, -1) for name in histories.item_names], dtype=np.int32)
    strange = [histories.item_names[place] for place in np.flatnonzero(number < 0).tolist()]
    if strange and unknown == "error":
        offer = nearest(strange[0], [*vocabulary, *filter(None, titles or ())]) if len(vocabulary) <= _COMPARED else ""
        raise DataError(
            f"{some_of(strange)} not among the {len(vocabulary):,} items that the model knows. {offer} "
            "unknown=skip leaves such items out; unknown=row takes them for one, where the model was trained with "
            "rare=unknown."
        )
    if strange and unknown == "row":
        if UNKNOWN not in places:
            raise ConfigError(
                "unknown=row: the model has no row for unknown items, which data.rare=unknown gives it in training; "
                "choose unknown=skip"
            )
        number[number < 0] = places[UNKNOWN]
    taken = replace(histories, items=number[histories.items], item_names=vocabulary, titles=titles)
    return _without_strange(taken) if strange and unknown == "skip" else taken


def with_enough(histories: Log, least: int) -> Log:
    """The histories of the users with so many items or more."""
    kept = histories.lengths >= least
    if kept.all():
        return histories
    rows = np.repeat(kept, histories.lengths)
    return replace(
        histories,
        items=histories.items[rows],
        offsets=np.concatenate([[0], np.cumsum(histories.lengths[kept])]),
        user_names=[name for name, is_kept in zip(histories.user_names, kept.tolist(), strict=True) if is_kept],
        times=None if histories.times is None else histories.times[rows],
        gold=None if histories.gold is None else histories.gold[rows],
    )


class _Actions(NamedTuple):
    """One row an action."""

    users: Int32[np.ndarray, " n"]
    items: Int32[np.ndarray, " n"]
    times: Num[np.ndarray, " n"] | None

    def at(self, which: np.ndarray) -> _Actions:
        return _Actions(self.users[which], self.items[which], None if self.times is None else self.times[which])

    def sorted(self) -> _Actions:
        """By user, then time, then as given."""
        same = self.users[1:] == self.users[:-1]
        if self.times is not None:
            same &= self.times[1:] >= self.times[:-1]
        if (same | (self.users[1:] > self.users[:-1])).all():
            return self
        keys = (self.users,) if self.times is None else (self.times, self.users)
        return self.at(np.lexsort(keys))


def _first_choices(actions: _Actions, items: int) -> Bool[np.ndarray, " n"]:
    """Which are a user's first with the item."""
    _, first = np.unique(actions.users.astype(np.int64) * items + actions.items, return_index=True)
    kept = np.zeros(len(actions.users), dtype=bool)
    kept[first] = True
    return kept


def _core(
    actions: _Actions, min_user_items: int, min_item_users: int, items: int, rare: Rare
) -> tuple[_Actions, Bool[np.ndarray, " items"]]:
    """What the filters leave, and which items share a row. Where no item is dropped, one pass over users is enough."""
    while len(actions.users):
        kept = (np.bincount(actions.users) >= min_user_items)[actions.users]
        if rare == "drop":
            kept &= (np.bincount(actions.items) >= min_item_users)[actions.items]
        if kept.all():
            break
        actions = actions.at(kept)
    counts = np.bincount(actions.items, minlength=items)
    return actions, (counts > 0) & (counts < min_item_users)


def _offsets(users: Int[np.ndarray, " n"], count: int) -> tuple[Int[np.ndarray, " present"], Int64[np.ndarray, " o"]]:
    """The users who have actions, and where those of each begin."""
    lengths = np.bincount(users, minlength=count)
    present = np.flatnonzero(lengths)
    return present, np.concatenate([[0], np.cumsum(lengths[present], dtype=np.int64)])


def _without_strange(histories: Log) -> Log:
    """Leaves out items below 0, and users who have no other; says how many."""
    kept = histories.items >= 0
    users = np.repeat(np.arange(len(histories.user_names)), histories.lengths)[kept]
    present, offsets = _offsets(users, len(histories.user_names))
    if not len(present):
        raise DataError("no history has an item that the model knows")
    lost = len(histories.user_names) - len(present)
    others = f", and {lost:,} user{'s' * (lost != 1)} without any other" if lost else ""
    log.warning("%s actions with items that the model does not know are left out%s", f"{(~kept).sum():,}", others)
    return replace(
        histories,
        items=histories.items[kept],
        offsets=offsets,
        user_names=[histories.user_names[place] for place in present.tolist()],
        times=None if histories.times is None else histories.times[kept],
        gold=None,  # it counts positions, of which some are gone
    )
