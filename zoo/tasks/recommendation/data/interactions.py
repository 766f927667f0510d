"""The interactions of a file as arrays of numbers, with lists of the names; there is no object for each interaction."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
from jaxtyping import Int32, Integer, Num

from zoo.data.tables import parse_number

_INTEGER = re.compile(r"[+-]?[0-9]+")
_YEAR = re.compile(r"-[0-9]+-[0-9]+-[0-9]+.*|(0000|\+?[0-9]{5,})-[0-9]+-[0-9]+.*")
"""The beginning of a date whose year is not from 1 to 9999."""
_BITS = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Coded = tuple[Integer[np.ndarray, " n"], Sequence[str]]
"""A column of texts: an index into the list of distinct texts for each row, negative for a missing value."""
Column = Num[np.ndarray, " n"] | Coded
"""A column of numbers, or of texts that represent numbers."""


@dataclass(frozen=True, eq=False)
class Interactions:
    """Interactions in the order of the file. The fields are arguments of `make_log`.

    Args:
        users: User of each interaction, as an index into `user_names`.
        items: Item of each interaction, as an index into `item_names`.
        times: Time of each interaction: a number as in the file, or a date in seconds since 1970 (UTC). The dtype is
            int64 if all are whole.
        user_names: Ids of the users, in the order of their first occurrence.
        item_names: Ids of the items, in the order of their first occurrence.
        titles: Titles of the items; "" where there is none.
    """

    users: Int32[np.ndarray, " n"]
    items: Int32[np.ndarray, " n"]
    times: Num[np.ndarray, " n"] | None
    user_names: Sequence[str]
    item_names: Sequence[str]
    titles: Sequence[str] | None = None


class IrregularError(Exception):
    """The fast reader cannot read a part of a file. The slow reader then reads it, or finds the error in it."""


class InteractionCollector:
    """Collects interactions while a file is read, in blocks or row by row.

    Args:
        min_rating: Interactions with a lower rating are left out, and counted in `low`.
    """

    def __init__(self, min_rating: float | None = None) -> None:
        self.min_rating = min_rating
        self.low = 0
        self.clock = Clock()
        self._users, self._items = Vocabulary(), Vocabulary()
        self._pieces: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]] = []
        self._row_users, self._row_items = array("i"), array("i")
        self._row_times: array[Any] = array("q")

    def add(
        self,
        users: Coded,
        items: Coded,
        times: Column | None = None,
        ratings: Column | None = None,
    ) -> None:
        """Adds the columns of many rows.

        Raises:
            IrregularError: A value may be invalid. Nothing was added.
        """
        users, items = _parse_names(users), _parse_names(items)
        moments = None if times is None else self._moments(times)
        kept: np.ndarray | None = None
        if ratings is not None and self.min_rating is not None:
            rated = _values(ratings, parse_number) if isinstance(ratings, tuple) else ratings
            kept = rated >= self.min_rating
            self.low += int((~kept).sum())
        self._pieces.append(
            (
                self._users.numbers(*users, kept),
                self._items.numbers(*items, kept),
                moments if kept is None or moments is None else moments[kept],
            )
        )

    def add_row(self, user: str, item: str, time: float | None = None, rating: float | None = None) -> None:
        """Adds one row, with a time that `clock` has read."""
        if isinstance(time, float) and self._row_times.typecode == "q":
            self._row_times = array("d", self._row_times)
        if rating is not None and self.min_rating is not None and rating < self.min_rating:
            self.low += 1
            return
        self._row_users.append(self._users[user])
        self._row_items.append(self._items[item])
        if time is not None:
            self._row_times.append(time)

    def finish(self) -> Interactions:
        """Returns all interactions that were added."""
        pieces, self._pieces = self._pieces, []
        if self._row_users:
            moments = np.array(self._row_times) if self._row_times else None
            pieces.append((np.array(self._row_users), np.array(self._row_items), moments))
        times = [piece[2] for piece in pieces if piece[2] is not None]
        return Interactions(
            users=np.concatenate([np.empty(0, dtype=np.int32), *(piece[0] for piece in pieces)]),
            items=np.concatenate([np.empty(0, dtype=np.int32), *(piece[1] for piece in pieces)]),
            times=np.concatenate(times) if times else None,
            user_names=list(self._users),
            item_names=list(self._items),
        )

    def _moments(self, times: Column) -> Num[np.ndarray, " n"]:
        if isinstance(times, tuple):
            return _values(times, self.clock.read)
        self.clock.expect("number", IrregularError)
        if times.dtype.kind == "f" and not (np.abs(times) < _BITS).all():
            raise IrregularError
        return times


class Vocabulary(dict[str, int]):
    """Numbers of names, in the order of their first occurrence."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number

    def numbers(self, codes: np.ndarray, names: Sequence[str], kept: np.ndarray | None) -> Int32[np.ndarray, " k"]:
        """Returns the numbers of coded names in the rows `kept`; other rows do not add a name."""
        import pandas as pd

        codes = codes if kept is None else codes[kept]
        number = np.empty(len(names), dtype=np.int32)
        distinct = pd.unique(codes)  # in the order of their first occurrence
        number[distinct] = self.iter_with_indices([names[code] for code in distinct.tolist()])
        return np.take(number, codes)

    def iter_with_indices(self, names: Sequence[str]) -> Int32[np.ndarray, " names"]:
        """Returns the number of each name; a new name is added."""
        return np.array([self[name] for name in names], dtype=np.int32)


class Clock:
    """Reads the timestamps of one file, which are all numbers or all dates."""

    def __init__(self) -> None:
        self.kind: Literal["number", "date"] | None = None

    def read(self, cell: str) -> int | float:
        """Returns a number as it is, or a date in seconds since 1970.

        Raises:
            ValueError: The text is neither; the message is a short phrase.
        """
        cell = cell.strip()
        if _INTEGER.fullmatch(cell):
            self.expect("number", ValueError)
            if not -_BITS <= (integer := int(cell)) < _BITS:
                raise ValueError(f"{cell!r} is too large for 64 bits")
            return integer
        try:
            moment = datetime.fromisoformat(cell)
        except ValueError:
            return self._number(cell)
        self.expect("date", ValueError)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds, rest = divmod((moment - _EPOCH) // _MICROSECOND, 1_000_000)
        return seconds + rest / 1_000_000 if rest else seconds

    def expect(self, kind: Literal["number", "date"], error: type[Exception]) -> None:
        """Raises `error` if this kind differs from that of the first timestamp."""
        self.kind = self.kind or kind
        if kind != self.kind:
            raise error(f"it is a {kind}, where the timestamps before it are {self.kind}s")

    def _number(self, cell: str) -> float:
        if _YEAR.fullmatch(cell):
            raise ValueError(f"the year of {cell!r} is not one from 1 to 9999")
        try:
            value = parse_number(cell)
        except ValueError as error:
            if str(error).endswith("is not a number"):
                raise ValueError(f"{cell!r} is neither a number nor a date") from None
            raise
        self.expect("number", ValueError)
        if abs(value) >= _BITS:
            raise ValueError(f"{cell!r} is too large for 64 bits")
        return value


def _parse_names(column: Coded) -> Coded:
    codes, names = column
    names = [name.strip() for name in names]
    if "" in names or (len(codes) and codes.min() < 0):
        raise IrregularError
    return codes, names


def _values(column: Coded, read: Callable[[str], float]) -> Num[np.ndarray, " n"]:
    """Parses each distinct text once; returns int64 if all are whole numbers, else float64."""
    codes, texts = column
    if len(codes) and codes.min() < 0:
        raise IrregularError
    try:
        values = [read(text) for text in texts]
    except ValueError as error:
        raise IrregularError from error
    all_integers = all(isinstance(value, int) for value in values)
    return np.array(values, dtype=np.int64 if all_integers else np.float64)[codes]
