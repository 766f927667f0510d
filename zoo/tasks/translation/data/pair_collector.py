"""Pairs of texts as the readers of the user's own files find them, one after another."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from zoo.data.encodings import UTF8, Encoding
from zoo.data.option_hints import format_option
from zoo.data.ragged import RaggedBuilder
from zoo.data.splits import NONE, SPLITS, TEST, split_stratified
from zoo.data.tables import OnBadRow, RowError
from zoo.errors import DataError
from zoo.tasks.translation.data.corpus import Corpus

MOST_CHARACTERS, MOST_TOKENS = 10_000, 1_000
_LINK = re.compile(r"(\d{1,9})-(\d{1,9})")


@dataclass(frozen=True, kw_only=True)
class ReaderOptions:
    """How the user's own pairs are read.

    Args:
        source: The name of the column of texts.
        target: Likewise of their translations.
        alignment: Likewise of links of words, where there is such a column.
        id: Likewise of names; None: the numbers of lines.
        split: Likewise of splits, where there is such a column.
        on_bad_row: Whether a bad pair is an error, or left out and counted.
        encoding: The encoding of the files.
        most_characters: A longer text is a bad one.
        max_length: A text with more tokens is a bad one; None: none is.
    """

    source: str = "source"
    target: str = "target"
    alignment: str = "alignment"
    id: str | None = None
    split: str = "split"
    on_bad_row: OnBadRow = "error"
    encoding: Encoding = UTF8
    most_characters: int = MOST_CHARACTERS
    max_length: int | None = MOST_TOKENS


Refuse = Callable[[str, str, str], RowError]
"""Makes the error of a bad pair, from the side (source, target, alignment), what is wrong and how to mend it."""


@dataclass
class PairCollector:
    """Pairs as they are found, one after another.

    Args:
        reading: How they are read.
        place: The file, for messages.
        keeps_texts: Whether texts are kept in memory.
    """

    reading: ReaderOptions
    place: Path
    keeps_texts: bool = True
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)
    links: RaggedBuilder = field(default_factory=lambda: RaggedBuilder(width=2))

    def add(self, texts: Mapping[str, str], id: str, split: int, refuse: Refuse) -> None:
        """Adds a pair.

        Args:
            texts: Side -> text.
            id: A name.
            split: A number of `zoo.data.splits`.
            refuse: Makes the error of a bad pair.
        """
        for side in ("source", "target"):
            problem = problem_of(texts[side], self.reading.most_characters) if side in texts else None
            if problem is not None:
                raise refuse(side, *problem)
        links = _links(texts, refuse) if {"target", "alignment"} <= set(texts) else []
        self.ids.append(id)
        self.splits.append(split)
        self.links.append(links)
        if self.keeps_texts:
            self.sources.append(texts["source"])
            self.targets.append(texts.get("target", ""))

    def corpus(
        self, sources: Sequence[str], targets: Sequence[str] | None, *, has_links: bool, split_seed: int | None
    ) -> Corpus:
        """The pairs.

        Args:
            sources: The texts.
            targets: Their translations; None: not known.
            has_links: Whether links of words are known.
            split_seed: The seed of the 60/20/20 split of pairs that all are in no split. None: these are pairs for a
                trained model, and those in no split are for its test.
        """
        splits = np.array(self.splits, dtype=np.int64)
        if split_seed is None and targets is not None:
            splits[splits == NONE] = TEST
        if split_seed is not None:
            if not self.ids:
                raise DataError(f"{self.place}: there is no pair of texts.")
            if (splits == NONE).all():
                splits = split_stratified(np.zeros(len(splits), dtype=np.int64), split_seed)
            missing = [name for number, name in enumerate(SPLITS) if not (splits == number).any()]
            if missing:
                raise DataError(f"{self.place}: no pair is in {missing[0]!r}. Give more pairs, or put some there.")
        return Corpus(sources, targets, self.ids, splits, self.links.build() if has_links else None)


def problem_of(text: str, most: int) -> tuple[str, str] | None:
    """Why something is no text to read."""
    if not text:
        return "the text is empty", "Fill it in."
    if len(text) > most:
        what = f"the text has {len(text):,} characters, and {most:,} are the most"
        return what, f"Part it, or raise {format_option('most_characters')}."
    return None


def _links(texts: Mapping[str, str], refuse: Refuse) -> list[int]:
    """Links as they are written, source-target, as the words of the target and of the source, one after another."""
    found = []
    words = {side: len(texts[side].split()) for side in ("source", "target")}
    for link in texts["alignment"].split():
        parts = _LINK.fullmatch(link)
        if parts is None:
            what = f"{link!r} is not a link"
            raise refuse("alignment", what, "Write words by their numbers from 0, source-target, such as 0-0 1-2.")
        source, target = int(parts[1]), int(parts[2])
        for side, number in (("source", source), ("target", target)):
            if number >= words[side]:
                what = f"{link!r} names word {number} of a {side} of {words[side]} words, from 0"
                raise refuse("alignment", what, "Words are what stands between white space. Mend the link.")
        found += [target, source]
    return found
