"""Counts how labels are used in the splits, and warns of labels that cannot be scored or may be slips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from zoo.data.splits import SPLITS, TEST, TRAIN, VAL
from zoo.errors import join_names, warn

_MAX_RARE_SHARE = 0.02
"""A label of fewer examples, as a share of those of another label that it resembles, may be a slip."""
_MIN_LENGTH = 5
"""Shorter names that differ by a letter are different words."""
_MAX_COMPARED = 2000
"""With more labels, names are not compared: they are as many as words of a language."""


@dataclass(frozen=True)
class LabelUse:
    """The examples that have a label.

    Args:
        name: The label.
        count: Number of examples.
        splits: Splits that they are in, as numbers of `zoo.data.splits`.
        first: Number of the first example.
    """

    name: str
    count: int
    splits: frozenset[int]
    first: int

    @property
    def where(self) -> str:
        """Names of the splits."""
        return " and ".join(name for number, name in enumerate(SPLITS) if number in self.splits) or "no split"


def count_label_uses(
    names: Sequence[str], labels: Int[np.ndarray, " n"] | Bool[np.ndarray, "n c"], splits: Int[np.ndarray, " n"]
) -> list[LabelUse]:
    """Returns how each label is used; labels without examples are left out.

    Args:
        names: Name of each label.
        labels: Number of each example's label, negative if it is unknown; or a flag for each label.
        splits: Split of each example, as a number of `zoo.data.splits`.
    """
    rows, columns = labels.nonzero() if labels.ndim == 2 else (np.flatnonzero(labels >= 0), labels[labels >= 0])
    order = np.argsort(columns, kind="stable")
    rows, columns = rows[order], columns[order]
    starts = np.searchsorted(columns, np.arange(len(names) + 1))
    uses = []
    for name, start, end in zip(names, starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if start < end:
            used_splits = frozenset(np.unique(splits[rows[start:end]]).tolist())
            uses.append(LabelUse(name, end - start, used_splits, int(rows[start])))
    return uses


def find_untrained(uses: Sequence[LabelUse]) -> list[LabelUse]:
    """Returns the labels that no training example has, and no model can learn."""
    return [use for use in uses if TRAIN not in use.splits]


def warn_of_unscored(source: Path, uses: Sequence[LabelUse], reason: str) -> None:
    """Warns of labels that validation or the test cannot measure.

    Args:
        source: The file or folder.
        uses: The labels.
        reason: The end of the sentence, with what separates it.
    """
    labels = [use.name for use in uses if not {VAL, TEST} <= use.splits]
    if labels:
        warn(f"{source}: {join_names(labels)} not in every split{reason}")


def warn_of_similar(source: Path, uses: Sequence[LabelUse]) -> None:
    """Warns of labels that may be slips: names that differ in case only, and rare ones with the letters of another."""
    folded = Counter(use.name.casefold() for use in uses)
    labels = [use.name for use in uses if folded[use.name.casefold()] > 1]
    if labels:
        warn(f"{source}: {join_names(labels)} classes of their own, and differ in the case of letters only.")
    for rare, common in _find_slips(uses):
        times = "once" if rare.count == 1 else f"{rare.count:,} times"
        warn(
            f"{source}: the label {rare.name!r} stands {times}, in {rare.where}, and is spelled almost like "
            f"{common.name!r}. Mend it if it is a slip."
        )


def _find_slips(uses: Sequence[LabelUse]) -> list[tuple[LabelUse, LabelUse]]:
    """Returns rare labels, each with a label that is at least as frequent and differs by a letter or two."""
    from rapidfuzz.distance import OSA

    if len(uses) > _MAX_COMPARED:
        return []
    candidates = [use for use in uses if len(use.name) >= _MIN_LENGTH and not any(map(str.isdigit, use.name))]
    ranked = sorted(candidates, key=lambda use: (use.count, use.name))
    pairs = []
    for number, rare in enumerate(ranked):
        limit = 1 if len(rare.name) < 2 * _MIN_LENGTH else 2
        for common in reversed(ranked[number + 1 :]):
            is_rare = rare.count <= max(1.0, _MAX_RARE_SHARE * common.count)
            is_different = rare.name.casefold() != common.name.casefold()
            if is_rare and is_different and OSA.distance(rare.name, common.name, score_cutoff=limit) <= limit:
                pairs.append((rare, common))
                break
    return pairs
