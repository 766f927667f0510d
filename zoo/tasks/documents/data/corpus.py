"""A set of texts, as all readers return it: labels and splits in memory, texts possibly read on access."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from zoo.data.labels import count_label_uses, find_untrained, warn_of_similar, warn_of_unscored
from zoo.data.lazy_text import Subset
from zoo.data.option_hints import format_option
from zoo.data.splits import NONE, SPLITS, TEST, TRAIN, VAL, split_stratified
from zoo.data.tables import collect_error, message, parse_number
from zoo.data.unknown_labels import UnknownLabels
from zoo.errors import DataError, did_you_mean, join_names, warn
from zoo.tasks.documents.label_set import Targets


@dataclass(frozen=True, eq=False)
class Corpus:
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

    def __len__(self) -> int:
        return len(self.splits)

    def numbers(self, split: str) -> Int[np.ndarray, " k"]:
        """Returns the indices of the texts of a split (train, val, test or all)."""
        return np.arange(len(self)) if split == "all" else np.flatnonzero(self.splits == SPLITS.index(split))

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


@dataclass
class TextCollector:
    """Collects the user's own texts, which a reader adds one by one.

    Args:
        source: File or folder, for messages.
        targets: Kind of labels.
        known: Labels of a trained model. Labels may then be missing.
        unknown: Where other labels go then. Default: they are errors.
    """

    source: Path
    targets: Targets
    known: Sequence[str] | None = None
    unknown: UnknownLabels | None = None
    ids: list[str] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)
    places: list[int | None] = field(default_factory=list)
    """Line of each text, for messages."""
    _numbers: dict[str, int] = field(default_factory=dict)
    _labels: list[tuple[int, ...]] = field(default_factory=list)

    def add(
        self, id: str, label: str | None, split: int, line: int | None, refuse: Callable[[str, str], DataError]
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
        if split == NONE and self.known is not None and names is not None:
            split = TEST
        self._labels.append(
            () if names is None else tuple(self._numbers.setdefault(n, len(self._numbers)) for n in names)
        )
        self.ids.append(id)
        self.splits.append(split)
        self.places.append(line)

    def corpus(self, texts: Sequence[Any], split_seed: int) -> Corpus:
        """Checks the rules for the whole set and returns it.

        Args:
            texts: The texts that were added.
            split_seed: Seed of the 60/20/20 split, which is made if no text has a split.
        """
        if self.known is None and not self.ids:
            raise DataError(f"{self.source}: there is no text.")
        found = list(self._numbers)
        names = tuple(self.known) if self.known is not None else self._sorted(found)
        order = {name: place for place, name in enumerate(names)}
        moved = [order[name] for name in found]
        if self.targets == "multi":
            labels: np.ndarray = np.zeros((len(self.ids), len(names)), dtype=bool)
            for row, each in enumerate(self._labels):
                labels[row, [moved[number] for number in each]] = True
        else:
            labels = np.array([moved[each[0]] if each else -1 for each in self._labels], dtype=np.int64)
        splits = np.array(self.splits, dtype=np.int64)
        corpus = Corpus(texts, self.ids, self.targets, names, labels, splits)
        if self.known is not None:
            return corpus
        if (splits == NONE).all():
            kinds = np.zeros(len(splits), dtype=np.int64) if self.targets == "multi" else labels
            corpus = replace(corpus, splits=split_stratified(kinds, split_seed))
        self._check(corpus)
        return corpus

    def _read(self, label: str | None, refuse: Callable[[str, str], DataError]) -> list[str] | None:
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
    def _number(label: str, refuse: Callable[[str, str], DataError]) -> str:
        try:
            return f"{parse_number(label):g}"
        except ValueError as error:
            raise refuse(str(error), "Write a number, such as 4, or leave out data.targets=ordinal.") from None

    def _sorted(self, names: list[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=float if self.targets == "ordinal" else str))

    def _check(self, corpus: Corpus) -> None:
        names = corpus.label_names
        if len(names) < 2:
            found = f"{names[0]!r} is the only label" if names else "no text has a label"
            raise DataError(f"{self.source}: {found}. Give two labels at least.")
        missing = [
            name for name, split in zip(SPLITS, (TRAIN, VAL, TEST), strict=True) if not (corpus.splits == split).any()
        ]
        if missing:
            raise DataError(f"{self.source}: no text is in {missing[0]!r}. Give more texts, or a column of splits.")
        uses = count_label_uses(names, corpus.labels, corpus.splits)
        rare = find_untrained(uses)
        if self.targets == "multi" and rare:
            named = join_names([use.name for use in rare])
            warn(f"{self.source}: {named} never in train, where no model can learn it. Put texts with it there.")
        for use in rare if self.targets != "multi" else ():
            what = f"the label {use.name!r} is seen in {use.where}, and never in train"
            line = self.places[use.first]
            file = self.source / self.ids[use.first] if line is None else self.source
            with collect_error():
                raise DataError(message(file, line, None, what, "Put a text with it into train."))
        if self.targets != "ordinal":
            warn_of_similar(self.source, uses)
        if self.targets != "multi":
            warn_of_unscored(self.source, uses, "; there are too few texts.")


def _is_list(label: str) -> bool:
    """Returns True if a label is written like a list of JSON or Python."""
    try:
        return label.startswith("[") and isinstance(json.loads(label.replace("'", '"')), list)
    except (ValueError, RecursionError):
        return False
