"""Questions and answers, as all readers return them: texts in memory, pixels read on access."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from jaxtyping import Int, UInt8

from zoo.data.lazy_text import Subset
from zoo.data.splits import SplitSet
from zoo.tasks.answering.synthetic.scenes import SyntheticVQA
from zoo.tasks.answering.synthetic.texts import Link, SyntheticQA
from zoo.tasks.images.synthetic_scenes import Box

About = Literal["picture", "passage", "premise"]
"""What is asked about: a picture, with an answer of a set; a passage, of which the answer is a part; or a premise, and
whether the hypothesis follows from it."""
COLUMNS: Mapping[About, tuple[str, str, str]] = {
    "picture": ("image", "question", "answer"),
    "passage": ("context", "question", "answer"),
    "premise": ("premise", "hypothesis", "label"),
}
"""The columns of what is asked about, of the question and of the answer."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswerSet(SplitSet):
    """Questions.

    Args:
        questions: The questions, or hypotheses.
        ids: Name of each question.
        splits: `TRAIN`, `VAL`, `TEST` or `NONE` of `zoo.data.splits`.
        answers: The answers, or labels; "" where one is not known.
        kinds: The kind of each question; "" if there are none.
    """

    about: ClassVar[About]
    questions: Sequence[str]
    ids: Sequence[str]
    splits: Int[np.ndarray, " n"]
    answers: Sequence[str]
    kinds: Sequence[str] | None = None

    @property
    def texts(self) -> Mapping[str, Sequence[str]]:
        """The texts, by the names of their columns."""
        return {COLUMNS[self.about][1]: self.questions}

    def select(self, numbers: Int[np.ndarray, " k"]) -> Self:
        """Returns the questions with these numbers, in ascending order."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        rows: dict[str, Any] = {
            name: Subset(column, numbers.tolist())
            for name, column in columns.items()
            if column is not None and name not in ("splits", "size")
        }
        return replace(self, splits=self.splits[numbers], **rows)


@dataclass(frozen=True, eq=False, kw_only=True)
class PictureQuestions(AnswerSet):
    """Questions about pictures.

    Args:
        pixels: The pictures, uint8 (3,h,w): an array, or a sequence that reads files.
        size: Height and width of every picture. Default: sizes differ, or are not known.
        boxes: Places in each picture that decide, in pixels; None: not known.
    """

    about = "picture"
    pixels: UInt8[np.ndarray, "n 3 h w"] | Sequence[Any]
    size: tuple[int, int] | None = None
    boxes: Sequence[Sequence[Box]] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class TextQuestions(AnswerSet):
    """Questions about passages, or hypotheses about premises.

    Args:
        passages: The passages, or premises.
        links: Words, between white space, of each question and its passage that decide; None: not known.
    """

    passages: Sequence[str]
    links: Sequence[Sequence[Link]] | None = None

    @property
    def texts(self) -> Mapping[str, Sequence[str]]:
        return {**super().texts, COLUMNS[self.about][0]: self.passages}


@dataclass(frozen=True, eq=False, kw_only=True)
class PassageQuestions(TextQuestions):
    """Questions whose answers are parts of passages.

    Args:
        spans: The characters of each passage where its answer begins and ends.
    """

    about = "passage"
    spans: Sequence[tuple[int, int]]


class Hypotheses(TextQuestions):
    """Hypotheses and their premises, with their labels as answers."""

    about = "premise"


def from_scenes(generate: Callable[[], SyntheticVQA]) -> PictureQuestions:
    """Returns generated questions about pictures."""
    scenes = generate()
    height, width = scenes.pixels.shape[2:]
    return PictureQuestions(
        questions=scenes.questions,
        ids=_number_ids(len(scenes.splits)),
        splits=scenes.splits,
        answers=scenes.answers,
        pixels=scenes.pixels,
        size=(height, width),
        kinds=scenes.kinds,
        boxes=scenes.boxes,
    )


def from_passages(generate: Callable[[], SyntheticQA]) -> PassageQuestions:
    """Returns generated questions about passages."""
    texts = generate()
    return PassageQuestions(
        questions=texts.questions,
        ids=_number_ids(len(texts.splits)),
        splits=texts.splits,
        answers=texts.answers,
        passages=texts.passages,
        spans=[_locate_words(passage, *span) for passage, span in zip(texts.passages, texts.spans, strict=True)],
        links=texts.links,
    )


def from_premises(generate: Callable[[], SyntheticQA]) -> Hypotheses:
    """Returns generated hypotheses and premises."""
    texts = generate()
    return Hypotheses(
        questions=texts.questions,
        ids=_number_ids(len(texts.splits)),
        splits=texts.splits,
        answers=texts.answers,
        passages=texts.passages,
        kinds=texts.answers,
        links=texts.links,
    )


def _number_ids(count: int) -> list[str]:
    return [f"question {number}" for number in range(1, count + 1)]


def _locate_words(passage: str, first: int, last: int) -> tuple[int, int]:
    """Returns the characters of words, which stand between single spaces."""
    words = passage.split(" ")
    start = sum(len(word) + 1 for word in words[:first])
    return start, start + len(" ".join(words[first : last + 1]))
