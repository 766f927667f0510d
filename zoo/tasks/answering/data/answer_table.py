"""The user's own questions: a table with a row for each. `data/README.md` describes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from zoo.data.labels import LabelUse, count_label_uses, find_untrained, warn_of_similar
from zoo.data.records import Column, Record, Records, Schema, assign_splits, check_labels
from zoo.data.splits import NONE, SPLITS, TEST, TRAIN, VAL
from zoo.data.tables import message
from zoo.errors import DataError, count_noun, join_names, warn
from zoo.tasks.answering.data.answer_set import (
    COLUMNS,
    About,
    AnswerSet,
    Hypotheses,
    PassageQuestions,
    PictureQuestions,
)
from zoo.tasks.vision.data.image_list import Decoded, ReaderOptions, TablePictures

_MOST_CHARACTERS = 1_000_000
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
    is_input = split_seed is None
    roles = COLUMNS[about]
    subject, question, answer = roles
    text = partial(Column, most=_MOST_CHARACTERS)
    columns = {
        subject: Column(subject, "file", required=True) if about == "picture" else text(subject, required=True),
        question: text(question, required=True),
        answer: text(answer, required=not is_input),
        **({START: Column(START)} if about == "passage" else {}),
        KIND: Column(KIND),
        SPLIT: Column(SPLIT, "split"),
        ID: Column(ID, "id"),
    }
    usage = f"the columns of such a table are {', '.join(columns)}"
    schema = Schema(noun="question", columns=columns, usage=usage)
    records = Records(path, schema, reading, is_input=is_input)
    pictures = TablePictures(reading, folder, path)
    ambiguous = 0

    def make(record: Record) -> _Question:
        nonlocal ambiguous
        span, image = (0, 0), None
        if about == "picture":
            image, _ = pictures.check(record, subject)
        elif about == "passage" and record[answer]:
            span, is_ambiguous = _find_span(record)
            ambiguous += is_ambiguous
        return _Question(
            record.id,
            record[subject],
            record[question],
            record[answer],
            record[KIND],
            record.split,
            span,
            image,
            record.line,
        )

    questions = list(records.parse(make))
    pictures.report()
    if ambiguous:
        warn(
            f"{path}: {ambiguous:,} answers stand more than once in their context; the first place "
            f"is taken. A column {START!r} with the place of the first character, from 0, decides."
        )
    answers = [each.answer for each in questions]
    # labels of hypotheses are few, so that each has its share of every split; answers about pictures are many
    labels = np.unique(answers, return_inverse=True)[1].reshape(-1) if about == "premise" else None
    splits = assign_splits(
        path,
        "question",
        [each.split for each in questions],
        seed=split_seed,
        known=np.array([bool(each) for each in answers]),
        labels=labels,
        checks=records.is_complete,
    )
    if not is_input and records.is_complete and about != "passage":
        _check(path, about, questions, splits)
    fields: dict[str, Any] = {
        "questions": [each.question for each in questions],
        "ids": [each.id for each in questions],
        "splits": splits,
        "answers": answers,
        "kinds": [each.kind for each in questions] if KIND in records else None,
    }
    if about == "picture":
        images = [each.image for each in questions if each.image is not None]
        return PictureQuestions(pixels=Decoded(images, reading), **fields)
    fields["passages"] = [each.subject for each in questions]
    if about == "passage":
        return PassageQuestions(spans=[each.span for each in questions], **fields)
    return Hypotheses(**fields)


class _Question(NamedTuple):
    """A row of the table."""

    id: str
    subject: str
    question: str
    answer: str
    kind: str
    split: int
    span: tuple[int, int]
    image: Path | None
    line: int


def _check(path: Path, about: About, questions: Sequence[_Question], splits: Int[np.ndarray, " n"]) -> None:
    """Refuses questions that cannot be learned, or of which a split lacks some; warns of answers like slips."""
    names, labels = np.unique([each.answer for each in questions], return_inverse=True)
    names, labels = names.tolist(), labels.reshape(-1)
    if about == "premise":
        locate = lambda number: (path, questions[number].line)  # noqa: E731
        column = COLUMNS[about][2]
        check_labels(path, "question", names, labels, splits, locate=locate, column=column, min_labels=1)
        return
    _check_answers(path, count_label_uses(names, labels, splits), labels, splits)


def _check_answers(
    path: Path, uses: Sequence[LabelUse], labels: Int[np.ndarray, " n"], splits: Int[np.ndarray, " n"]
) -> None:
    """Counts the questions whose answers no model can give, because training lacks them; some may be so."""
    is_learned = np.array([TRAIN in use.splits for use in uses])[labels]
    for number in (VAL, TEST):
        if not is_learned[splits == number].any():
            problem = f"no question of {SPLITS[number]!r} has an answer that a question of train has"
            raise DataError(message(path, None, "answer", problem, "Put such questions there."))
    lost = ~is_learned & (splits != NONE)
    if lost.any():
        names = [use.name for use in find_untrained(uses) if use.splits != {NONE}]
        counts = count_noun(int(lost.sum()), "question counts", "questions count")
        warn(f"{path}: {counts} as wrong, because in train {join_names(names)} no answer.")
    warn_of_similar(path, uses)


def _find_span(record: Record) -> tuple[tuple[int, int], bool]:
    """Returns the characters of the passage that are the answer, and whether other ones might be."""
    passage, answer, place = record["context"], record["answer"], record[START]
    if not place:
        start = passage.find(answer)
        if start < 0:
            raise record.error("answer", "the answer does not stand in the context", "Copy it from there.")
        return (start, start + len(answer)), passage.find(answer, start + 1) >= 0
    if not place.isascii() or not place.isdigit() or len(place) > 9:
        raise record.error(START, f"{place!r} is no place in a text", "Write a whole number from 0.")
    # the cell's own text counts, with the white space before it
    cell = record.row.cells[record.row.table.index["context"]]
    start = int(place) - (len(cell) - len(cell.lstrip()))
    if start < 0 or passage[start : start + len(answer)] != answer:
        problem = f"the context has something else than the answer at character {place}"
        raise record.error(START, problem, "Count characters from 0, or leave it empty.")
    return (start, start + len(answer)), False
