"""The limit of the length of texts, `data.max_length`, in all domains that read the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from zoo.data.option_hints import skip_hint
from zoo.data.tables import OnBadRow, RowError, collect_error
from zoo.errors import DataError, count_noun, warn
from zoo.tasks.base import TaskData
from zoo.tasks.command_options import CommandOption


def tokens(text: str) -> int:
    """Returns a number of tokens, for the command line."""
    value = int(text)
    if value < 1:
        raise ValueError(f"{text} is not positive")
    return value


LONGEST_TEXT = CommandOption(name="longest-text", kind=tokens, metavar="TOKENS", help="longest text that is read")
"""The option of `zoo predict`, `evaluate` and `maps` that replaces `data.max_length` for their input."""


@dataclass(frozen=True, kw_only=True)
class LengthLimit:
    """The most tokens of a text of the user's own. Texts of published and generated data have a length that is known.

    Args:
        most: The most tokens. Default: no limit.
        option: The option that raises it.
        on_bad_row: `error` raises an error for longer texts; `skip` leaves them out and counts them.
        noun: Word for an example, such as "pair".
        place: File of the examples. Default: there are several, or none.
    """

    most: int | None
    option: str
    on_bad_row: OnBadRow
    noun: str
    place: Path | None = None

    @classmethod
    def from_data(cls, data: TaskData, most: int | None, noun: str) -> LengthLimit:
        """Returns the limit of a data set.

        Args:
            data: The data set. Its source says whether the texts are the user's own (`is_own`), and their `place`; its
                attribute `longest_text` is the value of the option of the commands, or None.
            most: The most tokens in training.
            noun: Word for an example.
        """
        source, given = data.source, data.longest_text  # type: ignore[attr-defined]
        return cls(
            most=None if not source.is_own else most if given is None else given,
            option="data.max_length" if data.trained is None else f"--{LONGEST_TEXT.name}",
            on_bad_row=data.on_bad_row,
            noun=noun,
            place=source.place,
        )

    def permits(self, length: int) -> bool:
        """Returns True if a text may have so many tokens."""
        return self.most is None or length <= self.most

    def select_short(self, ids: Sequence[str], lengths: Mapping[str, Int[np.ndarray, " n"]]) -> Bool[np.ndarray, " n"]:
        """Returns the mask of the examples whose texts are short enough.

        Args:
            ids: Name of each example.
            lengths: Name of a text, such as "source" -> tokens of this text of each example.

        Raises:
            DataError: A text is too long, or every example has one.
        """
        longest = np.stack(list(lengths.values())).max(0, initial=0)
        kept: Bool[np.ndarray, " n"] = np.ones(len(longest), dtype=bool)
        if self.most is not None:
            kept = longest <= self.most
        bad = np.flatnonzero(~kept)
        if not len(bad):
            return kept
        if self.on_bad_row == "error":
            for number in bad.tolist():
                with collect_error():
                    raise self._error(ids[number], {name: int(each[number]) for name, each in lengths.items()})
        else:
            worst = int(bad[longest[bad].argmax()])
            of = f"{self.place}: " if self.place is not None else ""
            warn(
                f"{of}skipped {count_noun(len(bad), self.noun)} with more than {self.option}={self.most} tokens. "
                f"The longest: {ids[worst]!r}, with {longest[worst]:,} tokens."
            )
        if not kept.any():
            of = "the input" if self.place is None else str(self.place)
            raise DataError(f"{of}: no row is usable: each has more than {self.option}={self.most} tokens.")
        return kept

    def _error(self, id: str, lengths: Mapping[str, int]) -> RowError:
        name = max(lengths, key=lambda each: lengths[each])
        of = f"{self.place}, {self.noun} {id!r}" if self.place is not None else f"{self.noun} {id!r}"
        what = f"the {name} has {lengths[name]:,} tokens, and {self.most:,} are the most"
        return RowError(f"{of}: {what}. Part it, or raise {self.option}. {skip_hint(f'{self.noun}s')}")
