"""Interactions as they come out of a file: numbers instead of names, and no object for each of them."""

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

_WHOLE = re.compile(r"[+-]?[0-9]+")
_YEAR = re.compile(r"-[0-9]+-[0-9]+-[0-9]+.*|(0000|\+?[0-9]{5,})-[0-9]+-[0-9]+.*")
"""How a date begins whose year is none from 1 to 9999."""
_BITS = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Coded = tuple[Integer[np.ndarray, " n"], Sequence[str]]
"""A column of texts: the place of each in a list of those that occur, or a negative number where there is none."""
Column = Num[np.ndarray, " n"] | Coded
"""A column of numbers, or of texts that stand for them."""


@dataclass(frozen=True, eq=False)
class Interactions:
    """Who chose what and when, in the order of the file: what `make_log` takes.

    Args:
        users: Of each interaction, a place in `user_names`.
        items: Likewise, in `item_names`.
        times: Whole where all of them are; dates in seconds since 1970 (UTC).
        user_names: In the order in which they are met.
        item_names: Likewise.
        titles: What is shown for the items; "" where that is not known.
    """

    users: Int32[np.ndarray, " n"]
    items: Int32[np.ndarray, " n"]
    times: Num[np.ndarray, " n"] | None
    user_names: Sequence[str]
    item_names: Sequence[str]
    titles: Sequence[str] | None = None


class IrregularError(Exception):
    """A part of a file is not as the fast way needs it; what that is, and whether it is wrong, the slow way finds."""


class Gathered:
    """Interactions while they are read, a piece or a row at a time.

    Args:
        min_rating: Those rated lower are left out, and counted in `low`.
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
            IrregularError: One of the values is not as it should be, and nothing was added.
        """
        users, items = _named(users), _named(items)
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
        """Adds one row, whose time `clock` has read."""
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
        """All that was added."""
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
    """Names, numbered in the order in which they are met."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number

    def numbers(self, codes: np.ndarray, names: Sequence[str], kept: np.ndarray | None) -> Int32[np.ndarray, " k"]:
        """The numbers of coded names, of which only those kept count as met."""
        import pandas as pd

        codes = codes if kept is None else codes[kept]
        number = np.empty(len(names), dtype=np.int32)
        met = pd.unique(codes)  # in the order of their first places
        number[met] = self.placed([names[code] for code in met.tolist()])
        return np.take(number, codes)

    def placed(self, names: Sequence[str]) -> Int32[np.ndarray, " names"]:
        """The number of each name."""
        return np.array([self[name] for name in names], dtype=np.int32)


class Clock:
    """Reads the timestamps of one file, which are all numbers or all dates."""

    def __init__(self) -> None:
        self.kind: Literal["number", "date"] | None = None

    def read(self, cell: str) -> int | float:
        """A number as it is, a date in seconds since 1970; a ValueError says in a few words why it is neither."""
        cell = cell.strip()
        if _WHOLE.fullmatch(cell):
            self.expect("number", ValueError)
            if not -_BITS <= (whole := int(cell)) < _BITS:
                raise ValueError(f"{cell!r} is too large for 64 bits")
            return whole
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
        """The first one says what all are."""
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


def _named(column: Coded) -> Coded:
    codes, names = column
    names = [name.strip() for name in names]
    if "" in names or (len(codes) and codes.min() < 0):
        raise IrregularError
    return codes, names


def _values(column: Coded, read: Callable[[str], float]) -> Num[np.ndarray, " n"]:
    """The numbers that texts stand for, each of which is read once: int64 where all are whole, else float64."""
    codes, texts = column
    if len(codes) and codes.min() < 0:
        raise IrregularError
    try:
        values = [read(text) for text in texts]
    except ValueError as error:
        raise IrregularError from error
    whole = all(isinstance(value, int) for value in values)
    return np.array(values, dtype=np.int64 if whole else np.float64)[codes]
