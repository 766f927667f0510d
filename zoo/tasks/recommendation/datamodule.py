"""The data module of histories: splits them into training and held-out items, and makes batches of windows."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from jaxtyping import Bool, Int

from zoo.data.splits import SPLITS
from zoo.errors import CheckpointError, ConfigError, DataError
from zoo.nn.segments import array_ranges
from zoo.tasks.base import TaskData
from zoo.tasks.batching import BatchOptions, Examples
from zoo.tasks.command_options import CommandOption
from zoo.tasks.data_summary import Longest, Summary
from zoo.tasks.recommendation.batch import Catalogue, SequenceBatch
from zoo.tasks.recommendation.data.history_reader import items_of, read_histories
from zoo.tasks.recommendation.data.history_splits import Part, Split, full_histories, leave_one_out, split_by_time
from zoo.tasks.recommendation.data.interaction_log import Duplicates, Log, Unknown, drop_short, make_log, renumber
from zoo.tasks.recommendation.data.readers import ReaderOptions
from zoo.types import Fraction, PositiveInt, validate_ranges
from zoo.validation import COUNT

_EVAL_USERS_SEED = 0


@dataclass(frozen=True)
class HistorySource:
    """A source of histories, and how it reads the user's own files for a trained model.

    Args:
        read: Reads the histories.
        reading: Options for reading files that the user gives to a trained model.
        duplicates: Whether a repeated item of a user is kept or dropped in these files, as in training.
        min_user_items: Minimum number of items of a user in these files. Users with fewer items are in no split, as
            in training, but receive recommendations.
    """

    read: Callable[[], Log]
    reading: ReaderOptions = field(default_factory=ReaderOptions)
    duplicates: Duplicates = "keep"
    min_user_items: int = 1


@validate_ranges
class HistoryData(TaskData):
    """Batches of users, each with a window of the last items of the history.

    Args:
        source: Source of the histories.
        batching: Batch sizes and the order of users.
        length: Maximum length of a window.
        split: How items are held out (`zoo.tasks.recommendation.data.history_splits`).
        val_share: With split=time, the share of all interactions in the validation split.
        test_share: With split=time, the share of all interactions in the test split.
        eval_users: Maximum number of users in an evaluation. They are drawn at random, the same for every run.
            Default: all.
        bucketed: If True, a training batch has users with windows of similar length. This matters only to a net that
            pads; packed batches have no padding.
        unknown: How items are treated that a trained model does not know (`log.renumber`).
    """

    written = CommandOption(
        name="history",
        metavar="ITEMS",
        is_repeated=True,
        help="items that a user chose, oldest first: 'a,b,c'; repeatable",
    )
    input_options = (
        CommandOption(
            name="unknown",
            choices=get_args(Unknown),
            help="items that the model does not know: stop, leave them out, or use the row of unknown items",
        ),
    )

    source: HistorySource

    def __init__(
        self,
        source: HistorySource,
        batching: BatchOptions,
        *,
        length: PositiveInt,
        split: Split = "leave_one_out",
        val_share: Fraction = 0.1,
        test_share: Fraction = 0.1,
        eval_users: PositiveInt | None = None,
        bucketed: bool = False,
        unknown: Unknown = "error",
    ) -> None:
        super().__init__(source, batching)
        if split not in ("leave_one_out", "time"):
            raise ConfigError(f"data.split={split}: write leave_one_out or time")
        if split == "time" and not (val_share > 0 and test_share > 0 and val_share + test_share < 1):
            raise ConfigError(
                f"data.val_share={val_share} and data.test_share={test_share}: write numbers above 0 that leave a "
                "share for training"
            )
        self.length = length
        self.split: Split = split
        self.val_share = val_share
        self.test_share = test_share
        self.eval_users = eval_users
        self.bucketed = bucketed
        self.unknown: Unknown = unknown
        self.on_bad_row = source.reading.on_bad_row
        self._parts: dict[str, Part] | None = None

    def read(self) -> Log:
        log, trained = self.source.read(), self.trained
        if trained is not None:
            log = renumber(log, trained["items"], self.unknown, titles=trained["titles"])
        self._parts = None
        self._measured = drop_short(log, self.source.min_user_items) if self.is_input else log
        counts = _counts(log, self._split()["train"]) if trained is None else torch.tensor(trained["counts"])
        self._catalogue = Catalogue(names=log.item_names, titles=log.titles, counts=counts)
        return log

    @property
    def log(self) -> Log:
        """The histories that were read."""
        log: Log = self.content
        return log

    def names(self, content: Log) -> dict[str, Sequence[str]]:
        return {"items": content.item_names}

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        return {"items": len(state["items"]), "length": state["length"]}

    def summary(self) -> Summary:
        log = self.log
        return Summary(
            noun="user",
            sizes={split: len(self._users(split)) for split in SPLITS},
            are_shared=True,
            totals={"user": len(log.user_names), "item": len(log.item_names), "interaction": len(log.items)},
            longest=Longest.find("item", log.user_names, log.lengths),
        )

    def empty_hint(self, split: str) -> str:
        """Returns the reason why a split has no users, and a remedy."""
        if self.split == "leave_one_out":
            return "No user has the three items or more that data.split=leave_one_out needs. Give longer histories"
        return f"No user has items before it and in it. Raise data.{split}_share, or choose data.split=leave_one_out"

    def protocol(self) -> str:
        """Returns how items are held out, in a few words."""
        how = f"by time (the last {self.test_share:.0%} for the test)" if self.split == "time" else "leave-one-out"
        drawn = "" if self.eval_users is None else f", at most {self.eval_users:,} users"
        return f"{how}, windows of {self.length}{drawn}"

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue of items, which all batches share."""
        self.setup()
        return self._catalogue

    form: ClassVar[Mapping[str, Any]] = {
        "items": [str],
        "titles": ([(str, None)], None),
        "counts": [COUNT],
        "length": COUNT,
    }

    def state(self) -> dict[str, Any]:
        """Returns the items and the length of a window, to be stored in a checkpoint."""
        titles = self.log.titles
        return {
            **super().state(),
            "titles": None if titles is None else list(titles),
            "counts": self.catalogue.counts.tolist(),
            "length": self.length,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Takes the items and the length of a window from a checkpoint; data read afterwards are numbered by them."""
        for name in ("titles", "counts"):
            if state[name] is not None and len(state[name]) != len(state["items"]):
                raise CheckpointError(
                    f"the checkpoint has {len(state[name]):,} {name} for {len(state['items']):,} items"
                )
        super().restore(state)
        self.length = state["length"]

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> HistorySource:
        """Returns a source that reads the user's own files."""
        known = set(state["items"]) if self.unknown == "error" else None  # `renumber` handles unknown items else
        reading = replace(self.source.reading, on_bad_row=self.on_bad_row, encoding=self.encoding)
        read = partial(read_histories, paths, reading, known=known, duplicates=self.source.duplicates)
        return replace(self.source, read=read)

    def text_source(self, texts: Sequence[str], state: dict[str, Any]) -> HistorySource:
        """Returns a source of new users' histories, written as ids or titles separated by commas, oldest first."""
        return replace(self.source, read=partial(_parse_histories, texts, state, self.first_text))

    def examples(self, split: str, *, training: bool = False) -> Examples:
        """Returns the users of a split in order. The split `all` has every user, with the full history as input."""
        users = self._users(split)
        if training and not len(users):
            raise DataError("no user has two items or more in the training split, so that there is nothing to learn")
        lengths = users.lengths.tolist() if training and self.bucketed else None
        return Examples(entries=range(len(users)), collate=users.batch, lengths=lengths)

    def users(self, split: str) -> tuple[list[str], Int[np.ndarray, " k"]]:
        """Returns the ids of a split's users, in the order of its loader, and the lengths of their windows."""
        users = self._users(split)
        return users.ids, users.lengths

    def _users(self, split: str) -> _Users:
        log = self.log
        if split != "all":
            log = self._measured
        part = full_histories(log) if split == "all" else self._split()[split]
        part = part.select_users(_has_target(log, part, split, self.catalogue.unknown))
        if split in ("val", "test") and self.eval_users is not None and len(part.users) > self.eval_users:
            drawn = np.random.default_rng(_EVAL_USERS_SEED).permutation(len(part.users))[: self.eval_users]
            part = part.select_users(np.sort(drawn))
        return _Users(log, self.catalogue, part, "" if split == "all" else split, self.length)

    def _split(self) -> dict[str, Part]:
        """Returns the users of the training, validation and test splits. The split `all` does not need it."""
        if self.is_input and self.split == "time" and self._measured.times is None:
            warnings.warn(
                "the model was measured on a later part of its data, and these histories have no times: the last items "
                "of users are held out instead, so that metrics cannot be compared with those of the checkpoint",
                UserWarning,
                stacklevel=2,
            )
            self.split = "leave_one_out"
        if self._parts is None and self.split == "time" and len(self._measured.items):
            self._parts = split_by_time(self._measured, self.val_share, self.test_share)
        elif self._parts is None:
            self._parts = leave_one_out(self._measured)
        return self._parts


def _has_target(log: Log, part: Part, split: str, unknown: int | None) -> Bool[np.ndarray, " k"]:
    """Returns a mask of the users who have an item to learn from or to rank."""
    has_target = np.ones(len(part.users), dtype=bool)
    if split == "train":
        has_target &= part.ends - log.offsets[part.users] >= 2
    elif split != "all" and unknown is not None:
        has_target &= log.items[part.ends] != unknown
    return has_target


def _counts(log: Log, train: Part) -> torch.Tensor:
    """Counts how often each item occurs in training: the occurrences in the log minus those after training."""
    after = array_ranges(train.ends, log.offsets[1:] - train.ends)
    size = len(log.item_names)
    return torch.from_numpy(np.bincount(log.items, minlength=size) - np.bincount(log.items[after], minlength=size))


class _Users:
    """The users of one split. Batches are made without a loop over users or positions."""

    def __init__(self, log: Log, catalogue: Catalogue, part: Part, split: str, length: int) -> None:
        self.log = log
        self.catalogue = catalogue
        self.part = part
        self.split = split
        self.length = length

    def __len__(self) -> int:
        return len(self.part.users)

    @cached_property
    def lengths(self) -> Int[np.ndarray, " k"]:
        """Lengths of the windows. In training the last item is a target only, since no item follows it."""
        had = self.part.ends - self.log.offsets[self.part.users] - (self.split == "train")
        lengths: np.ndarray = np.minimum(had, self.length)
        return lengths

    @property
    def ids(self) -> list[str]:
        return [self.log.user_names[user] for user in self.part.users.tolist()]

    def batch(self, numbers: Sequence[int]) -> SequenceBatch:
        """Returns the packed batch of the users with these numbers."""
        log, part = self.log, self.part
        rows = np.asarray(numbers)
        users, lengths, learning = part.users[rows], self.lengths[rows], self.split == "train"
        ends = part.ends[rows] - learning
        positions = array_ranges(ends - lengths, lengths)
        items = log.items[positions].astype(np.int64)
        last = np.cumsum(lengths) - 1
        targets = np.roll(items, -1)
        targets[last] = log.items[ends] if learning else -1
        # In training this is the last target: an evaluation of the training split measures how well it is memorised.
        held_out = log.items[ends].astype(np.int64) if self.split else np.full(len(rows), -1)
        if self.catalogue.unknown is not None:
            for wanted in (targets, held_out):
                wanted[wanted == self.catalogue.unknown] = -1
        starts = log.offsets[users]
        seen, seen_lengths = _distinct(log.items, starts, part.seen_ends[rows] - starts, len(log.item_names))
        gold = None
        if log.gold is not None:
            back = log.gold[positions].astype(np.int64)
            within = positions - np.repeat(ends - lengths, lengths)
            gold = torch.from_numpy(np.where(back <= within, back, -1))
        return SequenceBatch(
            items=torch.from_numpy(items),
            lengths=torch.from_numpy(lengths),
            targets=torch.from_numpy(targets),
            held_out=torch.from_numpy(held_out),
            seen=torch.from_numpy(seen),
            seen_lengths=torch.from_numpy(seen_lengths),
            ids=tuple([log.user_names[user] for user in users.tolist()]),
            splits=(self.split,) * len(rows),
            catalogue=self.catalogue,
            times=None if log.times is None else torch.from_numpy(log.times[positions]),
            gold=gold,
        )


def _distinct(
    items: Int[np.ndarray, " n"], starts: Int[np.ndarray, " b"], lengths: Int[np.ndarray, " b"], size: int
) -> tuple[Int[np.ndarray, " s"], Int[np.ndarray, " b"]]:
    """Returns the distinct items of each range, sorted, and their number in each range."""
    rows = np.repeat(np.arange(len(starts)), lengths)
    keys = rows * size + items[array_ranges(starts, lengths)]
    keys.sort()
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
    rows, found = np.divmod(keys, size)
    return found, np.bincount(rows, minlength=len(starts))


def _parse_histories(texts: Sequence[str], state: dict[str, Any], first: int) -> Log:
    """Parses histories written on the command line. An item is looked up by its id, then by its title."""
    known = set(state["items"])
    titles = state["titles"] or state["items"]
    counts = Counter(titles)  # a title shared by two items identifies neither
    titled = {title: name for name, title in zip(state["items"], titles, strict=True) if counts[title] == 1}
    users: list[int] = []
    names: list[str] = []
    for user, text in enumerate(texts):
        try:
            found = items_of(text)
        except ValueError as error:
            raise DataError(
                f"--history {text!r}: {error}. Write items, oldest first, with commas between them."
            ) from None
        users += [user] * len(found)
        names += [name if name in known else titled.get(name, name) for name in found]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return make_log(
        np.array(users),
        np.array([numbers[name] for name in names]),
        user_names=[f"history {number}" for number, _ in enumerate(texts, start=first)],
        item_names=list(numbers),
    )
