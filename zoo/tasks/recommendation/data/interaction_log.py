"""The histories of all users as arrays: sorting, filtering and numbering of interactions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Int32, Int64, Integer, Num

from zoo.data.option_hints import format_option
from zoo.errors import ConfigError, DataError, count_noun, did_you_mean, join_names
from zoo.tasks.recommendation.batch import UNKNOWN

Duplicates = Literal["keep", "drop"]
Rare = Literal["drop", "unknown"]
Unknown = Literal["error", "skip", "row"]

_COMPARED = 100_000
"""Maximum number of item names that are searched for one similar to an unknown name."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Log:
    """The histories of all users.

    Args:
        items: Numbers of the items, user after user, oldest first.
        offsets: Offset of each user's first item, followed by the number of all items.
        item_names: Ids of the items, in the order of their numbers.
        user_names: Ids of the users, in the order of their numbers.
        times: Time of each item, in seconds.
        gold: Distance from each position back to the item that decides the next one; -1 if it is not known.
        titles: Title of each item, which is shown instead of its id.
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
        """Number of items of each user."""
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
        users: User of each interaction, as an index into `user_names`.
        items: Item of each interaction, as an index into `item_names`.
        times: Time of each interaction, in seconds. A user's interactions are sorted by time; those with equal times
            stay in the given order.
        user_names: Ids of the users.
        item_names: Ids of the items.
        titles: Titles of the items.
        min_user_items: Users with fewer interactions are left out.
        min_item_users: Items with fewer interactions are rare. Both filters are repeated until nothing changes, as in
            the 5-core sets (McAuley et al. 2015).
        duplicates: Whether an item that a user chose before is kept or dropped.
        rare: Whether rare items are dropped or share the row `UNKNOWN`.
    """
    for name, least in (("min_user_items", min_user_items), ("min_item_users", min_item_users)):
        if least < 1:
            raise ConfigError(f"data.{name}={least}: write a whole number from 1")
    if UNKNOWN in item_names:
        raise DataError(f"an item is called {UNKNOWN!r}, as the row that unknown items share; give it another id")
    actions = _Actions(users.astype(np.int32, copy=False), items.astype(np.int32, copy=False), times).sort()
    if duplicates == "drop":
        actions = actions.select(_first_choices(actions, len(item_names)))
    actions, shared = _core(actions, min_user_items, min_item_users, len(item_names), rare)
    if not len(actions.users):
        raise DataError(
            f"no user is left: data.min_user_items={min_user_items} and data.min_item_users={min_item_users} leave all "
            "users out; lower them"
        )
    if len(actions.users) < len(users):
        log.info(
            "%s of %s actions are left out by the filters", f"{len(users) - len(actions.users):,}", f"{len(users):,}"
        )
    present = np.bincount(actions.items, minlength=len(item_names)) > 0
    own = np.flatnonzero(present & ~shared)
    number = np.full(len(item_names), len(own), dtype=np.int32)
    number[own] = np.arange(len(own))
    kept_items = own.tolist()
    last = [UNKNOWN] if shared.any() else []
    users_left, offsets = _offsets(actions.users, len(user_names))
    return Log(
        items=number[actions.items],
        offsets=offsets,
        item_names=[item_names[item] for item in kept_items] + last,
        user_names=[user_names[user] for user in users_left.tolist()],
        times=None if actions.times is None else actions.times.astype(np.int64, copy=False),
        titles=None if titles is None else [titles[item] for item in kept_items] + [""] * len(last),
    )


def renumber(
    histories: Log, vocabulary: Sequence[str], unknown: Unknown, *, titles: Sequence[str] | None = None
) -> Log:
    """Returns the histories with items numbered as in a trained model.

    Args:
        histories: Histories with a numbering of their own.
        vocabulary: Ids of the model's items.
        unknown: Treatment of items that the model does not know. `error` raises a DataError; `skip` leaves out these
            items and users without any other; `row` maps them to the row `UNKNOWN`, which exists in a model that was
            trained with rare=unknown.
        titles: Titles of the model's items.
    """
    if list(histories.item_names) == list(vocabulary):
        return replace(histories, titles=titles)
    known = {name: number for number, name in enumerate(vocabulary)}
    number = np.array([known.get(name, -1) for name in histories.item_names], dtype=np.int32)
    strange = [histories.item_names[item] for item in np.flatnonzero(number < 0).tolist()]
    if strange and unknown == "error":
        offer = (
            did_you_mean(strange[0], [*vocabulary, *filter(None, titles or ())]) if len(vocabulary) <= _COMPARED else ""
        )
        raise DataError(
            f"{join_names(strange)} not among the {len(vocabulary):,} items that the model knows. {offer} "
            f"{format_option('unknown', 'skip')} leaves such items out; {format_option('unknown', 'row')} maps "
            "them to the row of unknown items, if the model was trained with data.rare=unknown."
        )
    if strange and unknown == "row":
        if UNKNOWN not in known:
            raise ConfigError(
                f"{format_option('unknown', 'row')}: the model has no row for unknown items, as it was not trained "
                f"with data.rare=unknown; choose {format_option('unknown', 'skip')}"
            )
        number[number < 0] = known[UNKNOWN]
    taken = replace(histories, items=number[histories.items], item_names=vocabulary, titles=titles)
    return _drop_unknown(taken) if strange and unknown == "skip" else taken


def drop_short(histories: Log, least: int) -> Log:
    """Returns the histories of the users with at least `least` items."""
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
    """Interactions as columns of equal length."""

    users: Int32[np.ndarray, " n"]
    items: Int32[np.ndarray, " n"]
    times: Num[np.ndarray, " n"] | None

    def select(self, which: np.ndarray) -> _Actions:
        return _Actions(self.users[which], self.items[which], None if self.times is None else self.times[which])

    def sort(self) -> _Actions:
        """Returns the interactions sorted by user, then by time; the sort is stable."""
        same = self.users[1:] == self.users[:-1]
        if self.times is not None:
            same &= self.times[1:] >= self.times[:-1]
        if (same | (self.users[1:] > self.users[:-1])).all():
            return self
        keys = (self.users,) if self.times is None else (self.times, self.users)
        return self.select(np.lexsort(keys))


def _first_choices(actions: _Actions, items: int) -> Bool[np.ndarray, " n"]:
    """Returns a mask of the interactions that are a user's first with an item."""
    _, first = np.unique(actions.users.astype(np.int64) * items + actions.items, return_index=True)
    kept = np.zeros(len(actions.users), dtype=bool)
    kept[first] = True
    return kept


def _core(
    actions: _Actions, min_user_items: int, min_item_users: int, items: int, rare: Rare
) -> tuple[_Actions, Bool[np.ndarray, " items"]]:
    """Applies both filters; returns the interactions that remain, and a mask of the items that share a row.

    If no item is dropped, one pass over the users is enough.
    """
    while len(actions.users):
        kept = (np.bincount(actions.users) >= min_user_items)[actions.users]
        if rare == "drop":
            kept &= (np.bincount(actions.items) >= min_item_users)[actions.items]
        if kept.all():
            break
        actions = actions.select(kept)
    counts = np.bincount(actions.items, minlength=items)
    return actions, (counts > 0) & (counts < min_item_users)


def _offsets(users: Int[np.ndarray, " n"], count: int) -> tuple[Int[np.ndarray, " present"], Int64[np.ndarray, " o"]]:
    """Returns the users who have interactions, and the offsets of each user's interactions."""
    lengths = np.bincount(users, minlength=count)
    present = np.flatnonzero(lengths)
    return present, np.concatenate([[0], np.cumsum(lengths[present], dtype=np.int64)])


def _drop_unknown(histories: Log) -> Log:
    """Leaves out items with number -1 and users who have no other, and logs how many there were."""
    kept = histories.items >= 0
    users = np.repeat(np.arange(len(histories.user_names)), histories.lengths)[kept]
    present, offsets = _offsets(users, len(histories.user_names))
    if not len(present):
        raise DataError("no history has an item that the model knows")
    lost = len(histories.user_names) - len(present)
    others = f", and {count_noun(lost, 'user')} without any other" if lost else ""
    log.warning("%s actions with items that the model does not know are left out%s", f"{(~kept).sum():,}", others)
    return replace(
        histories,
        items=histories.items[kept],
        offsets=offsets,
        user_names=[histories.user_names[user] for user in present.tolist()],
        times=None if histories.times is None else histories.times[kept],
        gold=None,  # distances in positions are no longer right
    )
