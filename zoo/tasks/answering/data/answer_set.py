"""Questions and answers, as all readers return them: texts in memory, pixels read on access."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

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


@dataclass(frozen=True, eq=False)
class AnswerSet(SplitSet):
    """Questions.

    Args:
        about: What they are about.
        questions: The questions, or hypotheses.
        ids: Name of each question.
        splits: `TRAIN`, `VAL`, `TEST` or `NONE` of `zoo.data.splits`.
        answers: The answers, or labels; "" where one is not known.
        pixels: The pictures, uint8 (3,h,w): an array, or a sequence that reads files; None: there are none.
        size: Height and width of every picture. Default: sizes differ, or are not known.
        passages: The passages, or premises; None: there are none.
        spans: The characters of each passage where its answer begins and ends; None: answers are no spans.
        kinds: The kind of each question; "" if there are none.
        links: Words, between white space, of each question and its passage that decide; None: not known.
        boxes: Places in each picture that decide, in pixels; None: not known.
    """

    about: About
    questions: Sequence[str]
    ids: Sequence[str]
    splits: Int[np.ndarray, " n"]
    answers: Sequence[str]
    pixels: UInt8[np.ndarray, "n 3 h w"] | Sequence[Any] | None = None
    size: tuple[int, int] | None = None
    passages: Sequence[str] | None = None
    spans: Sequence[tuple[int, int]] | None = None
    kinds: Sequence[str] | None = None
    links: Sequence[Sequence[Link]] | None = None
    boxes: Sequence[Sequence[Box]] | None = None

    def select(self, numbers: Int[np.ndarray, " k"]) -> AnswerSet:
        """Returns the questions with these numbers, in ascending order."""
        rows = ("questions", "ids", "answers", "pixels", "passages", "spans", "kinds", "links", "boxes")
        of = {name: getattr(self, name) for name in rows}
        chosen: dict[str, Any] = {name: Subset(each, numbers.tolist()) for name, each in of.items() if each is not None}
        return replace(self, splits=self.splits[numbers], **chosen)


def of_scenes(generate: Callable[[], SyntheticVQA]) -> AnswerSet:
    """Returns generated questions about pictures."""
    made = generate()
    height, width = made.pixels.shape[2:]
    return AnswerSet(
        about="picture",
        questions=made.questions,
        ids=[f"question {number}" for number in range(1, len(made.splits) + 1)],
        splits=made.splits,
        answers=made.answers,
        pixels=made.pixels,
        size=(height, width),
        kinds=made.kinds,
        boxes=made.boxes,
    )


def of_texts(generate: Callable[[], SyntheticQA]) -> AnswerSet:
    """Returns generated questions about passages, or hypotheses and premises."""
    made = generate()
    spans = None
    if made.spans is not None:
        spans = [_characters(passage, *span) for passage, span in zip(made.passages, made.spans, strict=True)]
    return AnswerSet(
        about="premise" if spans is None else "passage",
        questions=made.questions,
        ids=[f"question {number}" for number in range(1, len(made.splits) + 1)],
        splits=made.splits,
        answers=made.answers,
        passages=made.passages,
        spans=spans,
        kinds=made.answers if spans is None else None,
        links=made.links,
    )


def _characters(passage: str, first: int, last: int) -> tuple[int, int]:
    """Returns the characters of words, which stand between single spaces."""
    words = passage.split(" ")
    start = sum(len(word) + 1 for word in words[:first])
    return start, start + len(" ".join(words[first : last + 1]))
