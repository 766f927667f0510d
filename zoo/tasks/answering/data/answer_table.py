"""The user's own questions: a table with a row for each. `data/README.md` describes it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Int

from zoo.data.json_lines import open_table
from zoo.data.labels import LabelUse, count_label_uses, find_untrained, warn_of_similar, warn_of_unscored
from zoo.data.splits import NONE, SPLITS, TEST, TRAIN, VAL, split_stratified
from zoo.data.tables import Row, Table, collect_error, message
from zoo.errors import DataError, count_noun, join_names, warn
from zoo.tasks.answering.data.answer_set import COLUMNS, About, AnswerSet
from zoo.tasks.vision.data.image_io import ImageError
from zoo.tasks.vision.data.image_list import Decoded, ReaderOptions, verified, warn_of_animated

_LONGEST = 1_000_000
"""The most characters of a cell."""
START, KIND, SPLIT, ID = "start", "kind", "split", "id"
"""Columns that a table may have."""


def read_answer_table(
    path: Path, about: About, reading: ReaderOptions, *, folder: Path | None = None, split_seed: int | None = 0
) -> AnswerSet:
    """Reads a table (CSV, TSV, JSONL) with a row for each question.

    Args:
        path: The table.
        about: What the questions are about, which decides the columns: see `COLUMNS`.
        reading: How pictures are read, and what becomes of bad rows.
        folder: The folder that paths of pictures start from. Default: that of the table.
        split_seed: Seed of the 60/20/20 split of a table without splits. None: these are questions for a trained model,
            whose answers may be missing, and which are for its test if they have one.

    Raises:
        DataError: The table is not as described. The message has the file, line, column and a remedy.
    """
    names = COLUMNS[about]
    required = names if split_seed is not None else names[:2]
    table = open_table(path, required=required, on_bad_row=reading.on_bad_row, encoding=reading.encoding)
    known = (*names, KIND, SPLIT, ID, *([START] if about == "passage" else []))
    if unused := [name for name in table.columns if name not in known]:
        warn(f"{path}: {join_names(unused)} not used; the columns of such a table are {', '.join(known)}.")
    found = _Found(table, about, reading, (folder or path.parent).resolve(), is_input=split_seed is None)
    for _ in table.parse(found.add):
        pass
    if table.skipped:
        warn(table.report())
    return found.made(split_seed)


@dataclass(frozen=True)
class _Entry:
    """A row of the table."""

    id: str
    subject: str
    question: str
    answer: str
    kind: str
    split: int
    span: tuple[int, int]
    path: Path | None
    line: int


@dataclass
class _Found:
    """Questions as the rows of a table have them."""

    table: Table
    about: About
    reading: ReaderOptions
    folder: Path
    is_input: bool
    entries: dict[str, _Entry] = field(default_factory=dict)
    uncertain: int = 0
    """The number of answers that stand more than once in their passage, without a start."""
    animated: list[str] = field(default_factory=list)
    _pictures: dict[str, ImageError | None] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Adds the question of a row; a bad row adds nothing."""
        of_subject, of_question, of_answer = COLUMNS[self.about]
        subject, path = self._subject(row, of_subject)
        question = self._text(row, of_question)
        answer = self._text(row, of_answer, empty=self.is_input) if of_answer in self.table.columns else ""
        split = self._optional(row, SPLIT)
        kind, id = (self._optional(row, name) for name in (KIND, ID))
        if split and split not in SPLITS:
            row.choice(SPLIT, SPLITS)  # refuses it
        id = id or str(row.line)
        if id in self.entries:
            raise row.error(ID, f"{id!r} is the name of a row above too", "Give each question its own.")
        span = (0, 0)
        if self.about == "passage" and answer and not row.is_bad:
            span = self._span(row, subject, answer)
        if not row.is_bad:
            number = SPLITS.index(split) if split else NONE
            self.entries[id] = _Entry(id, subject, question, answer, kind, number, span, path, row.line)

    def made(self, split_seed: int | None) -> AnswerSet:
        entries = list(self.entries.values())
        if self.uncertain:
            warn(
                f"{self.table.path}: {self.uncertain:,} answers stand more than once in their context; the first place "
                f"is taken. A column {START!r} with the place of the first character, from 0, decides."
            )
        warn_of_animated(self.table.path, self.animated)
        splits = np.array([each.split for each in entries], dtype=np.int64)
        if split_seed is not None and SPLIT not in self.table.columns:
            # labels of hypotheses are few, so that each has its share of every split; answers about pictures are many
            answers = [each.answer if self.about == "premise" else "" for each in entries]
            splits = split_stratified(np.unique(answers, return_inverse=True)[1].reshape(-1), split_seed)
        if split_seed is not None and not self.table.collected:
            self._check(entries, splits)
        if self.is_input:
            known = np.array([bool(each.answer) for each in entries])
            splits = np.where(known & (splits == NONE), TEST, splits)
        subjects = [each.subject for each in entries]
        paths = [each.path for each in entries if each.path is not None]
        return AnswerSet(
            about=self.about,
            questions=[each.question for each in entries],
            ids=[each.id for each in entries],
            splits=splits,
            answers=[each.answer for each in entries],
            pixels=Decoded(paths, self.reading) if self.about == "picture" else None,
            passages=None if self.about == "picture" else subjects,
            spans=[each.span for each in entries] if self.about == "passage" else None,
            kinds=[each.kind for each in entries] if KIND in self.table.columns else None,
        )

    def _check(self, entries: Sequence[_Entry], splits: Int[np.ndarray, " n"]) -> None:
        """Refuses questions that cannot be learned, or of which a split lacks some; warns of answers like slips."""
        path = self.table.path
        for number, name in enumerate(SPLITS):
            if not (splits == number).any():
                remedy = "Give more questions, or put some there."
                raise DataError(message(path, None, None, f"no question is in {name!r}", remedy))
        if self.about == "passage":
            return
        names = sorted({each.answer for each in entries})
        index = {name: number for number, name in enumerate(names)}
        labels = np.array([index[each.answer] for each in entries], dtype=np.int64)
        uses, column = count_label_uses(names, labels, splits), COLUMNS[self.about][2]
        if self.about == "premise":
            for use in find_untrained(uses):
                what = f"the label {use.name!r} is seen in {use.where}, and never in train"
                line = entries[use.first].line
                with collect_error():
                    raise DataError(
                        message(path, line, column, what, "Mend it, or put a hypothesis with it into train.")
                    )
            warn_of_unscored(path, uses, "; there are too few hypotheses.")
        else:
            self._check_answers(uses, labels, splits)
        warn_of_similar(path, uses)

    def _check_answers(
        self, uses: Sequence[LabelUse], labels: Int[np.ndarray, " n"], splits: Int[np.ndarray, " n"]
    ) -> None:
        """Counts the questions whose answers no model can give, because training lacks them; some may be so."""
        learned = np.array([TRAIN in use.splits for use in uses])[labels]
        for number in (VAL, TEST):
            own = splits == number
            if not learned[own].any():
                what = f"no question of {SPLITS[number]!r} has an answer that a question of train has"
                raise DataError(message(self.table.path, None, "answer", what, "Put such questions there."))
        lost = ~learned & (splits != NONE)
        if lost.any():
            names = [use.name for use in find_untrained(uses) if use.splits != {NONE}]
            counts = count_noun(int(lost.sum()), "question counts", "questions count")
            warn(f"{self.table.path}: {counts} as wrong, because in train {join_names(names)} no answer.")

    def _subject(self, row: Row, column: str) -> tuple[str, Path | None]:
        """Returns the text that is asked about, or the name and the path of a picture that can be read."""
        if self.about != "picture":
            return self._text(row, column), None
        name, path = row.name(column), row.path(column, self.folder)
        if row.is_bad:
            return name, path
        real = os.path.realpath(path)
        if real not in self._pictures:
            try:
                self.animated += [name] if verified(path, self.reading) else []
                self._pictures[real] = None
            except ImageError as error:
                self._pictures[real] = error
        if (problem := self._pictures[real]) is not None:
            raise row.error(column, f"{name!r}: {problem.what}", problem.remedy)
        return name, path

    def _text(self, row: Row, column: str, *, empty: bool = False) -> str:
        text = row.text(column, empty=empty)
        if len(text) > _LONGEST:
            raise row.error(column, f"the text has {len(text):,} characters, and {_LONGEST:,} are the most", "Cut it.")
        return text

    def _optional(self, row: Row, column: str) -> str:
        return row.text(column, empty=True) if column in self.table.columns else ""

    def _span(self, row: Row, passage: str, answer: str) -> tuple[int, int]:
        """Returns the characters of the passage that are the answer."""
        given = self._optional(row, START)
        if not given:
            start = passage.find(answer)
            if start < 0:
                raise row.error("answer", "the answer does not stand in the context", "Copy it from there.")
            self.uncertain += passage.find(answer, start + 1) >= 0
            return start, start + len(answer)
        if not given.isascii() or not given.isdigit() or len(given) > 9:
            raise row.error(START, f"{given!r} is no place in a text", "Write a whole number from 0.")
        # the cell's own text counts, with the white space before it
        whole = row.cells[self.table.index["context"]]
        start = int(given) - (len(whole) - len(whole.lstrip()))
        if start < 0 or passage[start : start + len(answer)] != answer:
            what = f"the context has something else than the answer at character {given}"
            raise row.error(START, what, "Count characters from 0, or leave it empty.")
        return start, start + len(answer)
