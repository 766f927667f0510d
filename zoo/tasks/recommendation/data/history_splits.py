"""Splits histories into training, validation and test.

Leave-one-out: the last item of a user is held out for the test, the item before it for validation, and the others are
for training. The input of the test includes the item of the validation. Users with fewer than three items are in
training only.

By time: interactions before a first moment are for training, those between it and a second moment for validation, and
later ones for the test. An evaluation split contains the users who have items both before and in it; it ranks the first
item in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int

from zoo.errors import DataError
from zoo.tasks.recommendation.data.interaction_log import Log

Split = Literal["leave_one_out", "time"]


@dataclass(frozen=True, eq=False)
class Part:
    """The users of a split, and the offsets in the log at which each user's visible history ends.

    Args:
        users: Numbers of the users.
        ends: Offset at which the input of each user ends; in an evaluation split, the offset of the held-out item.
        seen_ends: Offset at which the items end that count as seen by the user.
    """

    users: Int[np.ndarray, " k"]
    ends: Int[np.ndarray, " k"]
    seen_ends: Int[np.ndarray, " k"]

    def select_users(self, which: np.ndarray) -> Part:
        """Returns some of the users, selected by index or by mask."""
        return Part(self.users[which], self.ends[which], self.seen_ends[which])


def leave_one_out(log: Log) -> dict[str, Part]:
    """Holds out the last item of each user for the test, and the item before it for validation."""
    starts, ends = log.offsets[:-1], log.offsets[1:]
    users = np.arange(len(starts))
    long = ends - starts >= 3
    trained = np.where(long, ends - 2, ends)
    return {
        "train": Part(users, trained, trained),
        "val": Part(users, trained, trained).select_users(long),
        "test": Part(users, trained + 1, trained).select_users(long),
    }


def split_by_time(log: Log, val_share: float, test_share: float) -> dict[str, Part]:
    """Splits at two moments, chosen so that the validation and the test have these shares of all interactions."""
    times = log.times
    if times is None:
        raise DataError(
            "data.split=time needs a time of each interaction, and this data has none; choose leave_one_out"
        )
    count = len(times)
    ranks = [min(count - round(share * count), count - 1) for share in (val_share + test_share, test_share)]
    first, second = np.partition(times, ranks)[ranks]
    starts, ends = log.offsets[:-1], log.offsets[1:]
    users = np.arange(len(starts))

    def count_before(moment: np.int64) -> np.ndarray:
        passed = np.concatenate([[0], np.cumsum(times < moment)])
        found: np.ndarray = starts + passed[ends] - passed[starts]
        return found

    trained, validated = count_before(first), count_before(second)
    return {
        "train": Part(users, trained, trained),
        "val": Part(users, trained, trained).select_users((starts < trained) & (trained < validated)),
        "test": Part(users, validated, validated).select_users((starts < validated) & (validated < ends)),
    }


def full_histories(log: Log) -> Part:
    """Returns all users, each with the full history as input."""
    ends = log.offsets[1:]
    return Part(np.arange(len(ends)), ends, ends)
