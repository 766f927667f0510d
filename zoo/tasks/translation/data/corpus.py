"""Pairs of texts as every reader gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from zoo.data.lazy_text import Subset
from zoo.data.line_index import TextLines
from zoo.data.splits import SplitSet


@dataclass(frozen=True, eq=False)
class Corpus(SplitSet):
    """Texts and their translations.

    Args:
        sources: By number: the texts. What is no list reads them from files.
        targets: Their translations; None: not known.
        ids: A name for each pair.
        splits: `TRAIN`, `VAL`, `TEST` or `NONE` of `zoo.data.splits`.
        links: Gold alignment of each pair: words of the target and words of the source, by their numbers. Words are
            between white space. None: not known.
        lines: The lines of the texts in their file; None: they are rows of a table.
    """

    sources: Sequence[str]
    targets: Sequence[str] | None
    ids: Sequence[str]
    splits: Int[np.ndarray, " n"]
    links: Sequence[Int[np.ndarray, "l 2"]] | None = None
    lines: TextLines | None = None

    def select(self, numbers: Int[np.ndarray, " k"]) -> Corpus:
        """The pairs with these numbers, in ascending order."""
        return Corpus(
            Subset(self.sources, numbers.tolist()),
            None if self.targets is None else Subset(self.targets, numbers.tolist()),
            [self.ids[number] for number in numbers],
            self.splits[numbers],
            None if self.links is None else Subset(self.links, numbers.tolist()),
            None if self.lines is None else self.lines.select(numbers.tolist()),
        )
