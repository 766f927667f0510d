"""A set of texts, as all readers return it: labels and splits in memory, texts possibly read on access."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from zoo.data.lazy_text import Subset
from zoo.data.option_hints import format_option
from zoo.data.records import assign_splits, check_labels
from zoo.data.splits import TRAIN, SplitSet
from zoo.data.tables import parse_number
from zoo.data.unknown_labels import UnknownLabels
from zoo.errors import DataError, did_you_mean
from zoo.tasks.documents.label_set import Targets


@dataclass(frozen=True, eq=False)
class Corpus(SplitSet):
    """Texts with labels and splits.

    Args:
        texts: The texts, or the list of sentences of each text: a list, or a sequence that reads files on access.
        ids: Name of each text.
        targets: Kind of labels.
        label_names: Name of each label.
        labels: Index of each text's label, or -1 if it is unknown; if texts can have several labels, a flag per label.
        splits: Split of each text: `TRAIN`, `VAL`, `TEST` or `NONE` of `zoo.data.splits`.
        gold_words: Mask of the words of each text (separated by white space) that determine its label. Default:
            unknown.
        gold_sentences: Mask of the sentences of each text that determine its label. Default: unknown.
    """

    texts: Sequence[Any]
    ids: Sequence[str]
    targets: Targets
    label_names: tuple[str, ...]
    labels: Int[np.ndarray, " n"] | Bool[np.ndarray, "n c"]
    splits: Int[np.ndarray, " n"]
    gold_words: Sequence[Bool[np.ndarray, " _"]] | None = None
    gold_sentences: Sequence[Bool[np.ndarray, " _"]] | None = None

    def select(self, numbers: Int[np.ndarray, " k"]) -> Corpus:
        """Returns the texts with these indices, in ascending order."""
        chosen = numbers.tolist()
        gold = (None if each is None else Subset(each, chosen) for each in (self.gold_words, self.gold_sentences))
        ids = [self.ids[number] for number in chosen]
        texts, labels, splits = Subset(self.texts, chosen), self.labels[numbers], self.splits[numbers]
        return Corpus(texts, ids, self.targets, self.label_names, labels, splits, *gold)

    @cached_property
    def is_labelled(self) -> Bool[np.ndarray, " n"]:
        """Mask of the texts whose labels are known."""
        return np.ones(len(self), dtype=bool) if self.targets == "multi" else self.labels >= 0

    def counts(self) -> tuple[int, ...]:
        """Returns the number of training texts that have each label."""
        labels = self.labels[self.splits == TRAIN]
        if self.targets == "multi":
            return tuple(labels.sum(0).tolist())
        return tuple(np.bincount(labels[labels >= 0], minlength=len(self.label_names)).tolist())


Refuse = Callable[[str, str], DataError]
"""Makes an error, from a description of the problem and a remedy."""


@dataclass
class TextCollector:
    """Collects the user's own texts, which a reader adds one by one.

    Args:
        source: File or folder, for messages.
        targets: Kind of labels.
        known: Labels of a trained model. Labels may then be missing.
        unknown: Where other labels go then. Default: they are errors.
        column: Column of labels, for messages.
    """

    source: Path
    targets: Targets
    known: Sequence[str] | None = None
    unknown: UnknownLabels | None = None
    column: str | None = None
    is_complete: bool = True
    """Whether no text is missing because its problems were listed."""
    ids: list[str] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)
    lines: list[int | None] = field(default_factory=list)
    """Line of each text, for messages."""
    _labels: list[tuple[str, ...] | None] = field(default_factory=list)

    def add(
        self, id: str, label: str | None, split: int, line: int | None = None, refuse: Refuse = lambda *_: DataError()
    ) -> None:
        """Adds a text.

        Args:
            id: Name of the text.
            label: Label as it is written, or None if there is no column of labels.
            split: Split of the text, or `NONE`.
            line: Line of the text, or None if it is a file of its own.
            refuse: Makes the error of a bad label, from a description of the problem and a remedy.
        """
        try:
            names = self._read(label, refuse)
        except DataError:
            if self.unknown is None or label is None:
                raise
            self.unknown.add(id, label)
            names = None
        self._labels.append(None if names is None else tuple(map(sys.intern, names)))
        self.ids.append(id)
        self.splits.append(split)
        self.lines.append(line)

    def corpus(self, texts: Sequence[Any], split_seed: int | None = None) -> Corpus:
        """Checks the rules for the whole set and returns it.

        Args:
            texts: The texts that were added.
            split_seed: Seed of the 60/20/20 split, which is made if no text has a split. None for a trained model.
        """
        if self.known is None and not self.ids:
            raise DataError(f"{self.source}: there is no text.")
        names = self.known
        if names is None:
            key = float if self.targets == "ordinal" else str
            names = sorted({name for names in self._labels for name in names or ()}, key=key)
        index = {name: number for number, name in enumerate(names)}
        if self.targets == "multi":
            labels: np.ndarray = np.zeros((len(self.ids), len(names)), dtype=bool)
            for row, own in enumerate(self._labels):
                labels[row, [index[name] for name in own or ()]] = True
        else:
            labels = np.array([index[own[0]] if own else -1 for own in self._labels], dtype=np.int64)
        splits = assign_splits(
            self.source,
            "text",
            self.splits,
            seed=split_seed,
            checks=False,
            known=np.array([own is not None for own in self._labels]),
            labels=None if self.targets == "multi" else labels,
        )
        if self.known is None and self.is_complete:
            check_labels(
                self.source,
                "text",
                names,
                labels,
                splits,
                locate=self._locate,
                column=self.column,
                are_numbers=self.targets == "ordinal",
            )
        return Corpus(texts, self.ids, self.targets, tuple(names), labels, splits)

    def _locate(self, number: int) -> tuple[Path, int | None]:
        """Returns the file of a text, and its line if it is in a table."""
        line = self.lines[number]
        return self.source / self.ids[number] if line is None else self.source, line

    def _read(self, label: str | None, refuse: Refuse) -> list[str] | None:
        """Returns the labels that a cell names, or None if they are unknown."""
        if label is None or (not label and self.known is not None):
            return None
        if _is_list(label):
            raise refuse("it is a list", f'Write several labels as "a; b", with {format_option("targets", "multi")}.')
        if self.targets == "multi":
            names = [name for name in (part.strip() for part in label.split(";")) if name]
            repeated = [name for name, count in Counter(names).items() if count > 1]
            if repeated:
                raise refuse(f"{repeated[0]!r} is named more than once", "Name each label once.")
        elif not label:
            raise refuse("the cell is empty", "Fill it in.")
        else:
            names = [self._number(label, refuse)] if self.targets == "ordinal" else [label]
        strange = [name for name in names if self.known is not None and name not in self.known]
        if self.known is not None and strange:
            what = f"{strange[0]!r} is not one of the {len(self.known)} labels that the model was trained on"
            raise refuse(what, did_you_mean(strange[0], self.known))
        return names

    @staticmethod
    def _number(label: str, refuse: Refuse) -> str:
        try:
            return f"{parse_number(label):g}"
        except ValueError as error:
            raise refuse(str(error), "Write a number, such as 4, or leave out data.targets=ordinal.") from None


def _is_list(label: str) -> bool:
    """Returns True if a label is written like a list of JSON or Python."""
    try:
        return label.startswith("[") and isinstance(json.loads(label.replace("'", '"')), list)
    except (ValueError, RecursionError):
        return False
