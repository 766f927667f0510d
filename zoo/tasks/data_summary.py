"""What a data set holds: what each domain declares of it, and the lines that the preflight prints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int, Num

from zoo.data.ragged import RaggedArray
from zoo.data.splits import SPLITS
from zoo.errors import count_noun, pluralize

_MOST_LABELS, _RAREST, _LONGEST = 12, 3, 3


@dataclass(frozen=True)
class Longest:
    """The longest examples of a data set.

    Args:
        unit: What lengths count, in the singular: "word".
        examples: Name and length of the longest examples, the longest first.
        median: Median of all lengths.
    """

    unit: str
    examples: Sequence[tuple[str, float]]
    median: float

    @classmethod
    def find(cls, unit: str, ids: Sequence[str], lengths: Num[np.ndarray, " n"]) -> Longest | None:
        """Returns the longest of some examples, or None if there are none."""
        if not len(lengths):
            return None
        order = np.argsort(-lengths, kind="stable")[:_LONGEST].tolist()
        return cls(unit, [(str(ids[number]), lengths[number].item()) for number in order], float(np.median(lengths)))


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that a model knows.

    Args:
        name: What they are, such as "target tokens".
        size: Number of tokens, without special ones.
        unknown: Split -> share of its tokens that training lacks.
        most: Number of examples of a split that were looked at. Default: all.
    """

    name: str
    size: int
    unknown: Mapping[str, float]
    most: int | None = None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a data set holds.

    Args:
        noun: What an example is, in the singular: "text".
        sizes: Split -> number of its examples.
        spare: Number of examples that are in no split.
        are_shared: Whether splits have examples in common, as the users of histories are in all of them.
        totals: What else there is, noun in the singular -> count, such as the edges of a graph.
        hours: Split -> hours of sound.
        labels: Label -> its number of examples in train, val and test.
        longest: The longest examples. Default: examples have no lengths.
        vocabularies: The vocabularies of texts.
    """

    noun: str
    sizes: Mapping[str, int]
    spare: int = 0
    are_shared: bool = False
    totals: Mapping[str, int] = field(default_factory=dict)
    hours: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, Sequence[int]] = field(default_factory=dict)
    longest: Longest | None = None
    vocabularies: Sequence[Vocabulary] = ()

    def lines(self) -> Iterator[str]:
        """Yields the lines that the preflight prints."""
        spare = f", in no split {self.spare:,}" if self.spare else ""
        every = sum(self.sizes.values()) + self.spare
        examples = pluralize(self.noun) if self.are_shared else count_noun(every, self.noun)
        yield f"splits     {examples}: {_list_shares(self.sizes)}{spare}"
        if self.totals:
            yield f"in all     {', '.join(count_noun(count, noun) for noun, count in self.totals.items())}"
        if self.hours:
            hours = math.fsum(self.hours.values())
            unit, scale = ("hours", 1.0) if hours >= 1 else ("minutes", 60.0)
            parts = {split: each * scale for split, each in self.hours.items()}
            yield f"sound      {hours * scale:.2f} {unit}: {_list_shares(parts)}"
        if self.labels:
            yield f"labels     {len(self.labels):,}, in {', '.join(SPLITS)}: {self._labels()}"
        if self.longest is not None:
            unit, median = self.longest.unit, self.longest.median
            named = ", ".join(f"{_number(length)} in {name!r}" for name, length in self.longest.examples)
            yield f"longest    {pluralize(unit)}: {named}; median {_number(median)}"
        for each in self.vocabularies:
            shares = ", ".join(f"{share:.1%} of {split}" for split, share in each.unknown.items())
            of = "" if each.most is None else f", of {count_noun(each.most, self.noun)} each"
            yield f"vocabulary {each.size:,} {each.name} of train" + (f"; unknown: {shares}{of}" if shares else "")

    def _labels(self) -> str:
        names = sorted(self.labels, key=lambda name: -self.labels[name][0])
        if len(names) <= _MOST_LABELS:
            return ", ".join(map(self._label, names))
        shown = ", ".join(map(self._label, names[: _MOST_LABELS - _RAREST]))
        rarest = ", ".join(map(self._label, names[-_RAREST:]))
        return f"{shown} and {len(names) - _MOST_LABELS:,} more; the rarest: {rarest}"

    def _label(self, name: str) -> str:
        return f"{name} {'/'.join(f'{count:,}' for count in self.labels[name])}"


def count_splits(splits: Int[np.ndarray, " n"]) -> dict[str, int]:
    """Returns split -> number of its examples, of examples whose splits are numbers of `zoo.data.splits`."""
    return {name: int((splits == number).sum()) for number, name in enumerate(SPLITS)}


def count_labels(
    names: Sequence[str], labels: Int[np.ndarray, " n"] | Bool[np.ndarray, "n c"], splits: Int[np.ndarray, " n"]
) -> dict[str, list[int]]:
    """Returns label -> its number of examples in each of `SPLITS`.

    Args:
        names: Name of each label.
        labels: Label of each example, negative if it is unknown; or a flag per label.
        splits: Split of each example, a number of `zoo.data.splits`.
    """
    found = []
    for split in range(len(SPLITS)):
        own = labels[splits == split]
        found.append(own.sum(0) if own.ndim == 2 else np.bincount(own[own >= 0], minlength=len(names)))
    return {name: [int(counts[number]) for counts in found] for number, name in enumerate(names)}


def share_unknown(
    texts: Sequence[RaggedArray], splits: Int[np.ndarray, " n"], unknown: int, names: Sequence[str] = SPLITS[1:]
) -> dict[str, float]:
    """Returns split -> share of its tokens that are unknown, for the splits that have tokens.

    Args:
        texts: Numbers of tokens of each example, for each kind of text that an example has.
        splits: Split of each example.
        unknown: Number of the unknown token.
        names: Names of the splits.
    """
    found = {}
    for name in names:
        number = SPLITS.index(name)
        values = [each.values[np.repeat(splits == number, each.lengths)] for each in texts]
        count = sum(len(each) for each in values)
        if count:
            found[name] = sum(int((each == unknown).sum()) for each in values) / count
    return found


def _list_shares(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_number(value)}" for name, value in values.items())


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
