"""How items are held out of histories.

Leave-one-out: a user's last item is that of the test, the one before it that of the validation, and the rest is for
training; the test sees the item of the validation. Users with fewer than three items are in training alone.
By time: what happened before one moment is for training, from there to a second one for validation, then for the
test. A user is in an evaluation split who has items before it and in it; the first one in it is to be ranked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int

from zoo.errors import DataError
from zoo.tasks.recommendation.data.log import Log

Split = Literal["leave_one_out", "time"]


@dataclass(frozen=True, eq=False)
class Part:
    """The users of a split, and where in the log that ends which is known of them.

    Args:
        users: Their numbers.
        ends: Where the input of each ends; in an evaluation split the item that is held out stands there.
        seen_ends: Where that ends which counts as seen.
    """

    users: Int[np.ndarray, " k"]
    ends: Int[np.ndarray, " k"]
    seen_ends: Int[np.ndarray, " k"]

    def kept(self, which: np.ndarray) -> Part:
        """Some of them, by number or by mask."""
        return Part(self.users[which], self.ends[which], self.seen_ends[which])


def leave_one_out(log: Log) -> dict[str, Part]:
    """The last item of a user is for the test, the one before it for validation, the rest for training."""
    starts, ends = log.offsets[:-1], log.offsets[1:]
    users = np.arange(len(starts))
    long = ends - starts >= 3
    trained = np.where(long, ends - 2, ends)
    return {
        "train": Part(users, trained, trained),
        "val": Part(users, trained, trained).kept(long),
        "test": Part(users, trained + 1, trained).kept(long),
    }


def by_time(log: Log, val_share: float, test_share: float) -> dict[str, Part]:
    """What happened before one moment, between it and another, and after that; the shares are of all interactions."""
    times = log.times
    if times is None:
        raise DataError(
            "data.split=time needs a time of each interaction, and this data has none; choose leave_one_out"
        )
    count = len(times)
    places = [min(count - round(share * count), count - 1) for share in (val_share + test_share, test_share)]
    first, second = np.partition(times, places)[places]
    starts, ends = log.offsets[:-1], log.offsets[1:]
    users = np.arange(len(starts))

    def before(moment: np.int64) -> np.ndarray:
        passed = np.concatenate([[0], np.cumsum(times < moment)])
        found: np.ndarray = starts + passed[ends] - passed[starts]
        return found

    trained, validated = before(first), before(second)
    return {
        "train": Part(users, trained, trained),
        "val": Part(users, trained, trained).kept((starts < trained) & (trained < validated)),
        "test": Part(users, validated, validated).kept((starts < validated) & (validated < ends)),
    }


def whole(log: Log) -> Part:
    """Everybody, with everything."""
    ends = log.offsets[1:]
    return Part(np.arange(len(ends)), ends, ends)
