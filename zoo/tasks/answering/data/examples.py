"""What was read of questions, and the examples that batches are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from zoo.data.ragged import RaggedArray
from zoo.data.splits import NONE, SPLITS
from zoo.nn.images.image_input import OriginalImage
from zoo.tasks.answering.batch import QuestionExample, Wording
from zoo.tasks.answering.data.answer_set import AnswerSet
from zoo.tasks.seq2seq.text_codec import TextCodec
from zoo.tasks.vision.batch import Picture
from zoo.tasks.vision.data.transforms import Preprocessing
from zoo.text.tokens import tokens_of_words


@dataclass(frozen=True, eq=False)
class Content:
    """What was read.

    Args:
        asked: The questions.
        language: The language of questions and passages.
        questions: The tokens of each question.
        passages: The tokens of each passage; None if there are pictures.
        answer_names: All answers that a model can give, or labels; none if answers are spans.
        answers: The number of each answer; `UNKNOWN` if it is not known, or is none of those.
        spans: The first and the last token of each answer; None if answers are no spans.
    """

    asked: AnswerSet
    language: TextCodec
    questions: RaggedArray
    passages: RaggedArray | None
    answer_names: tuple[str, ...]
    answers: Int[np.ndarray, " n"]
    spans: Int[np.ndarray, "n 2"] | None


class Entries(Sequence[QuestionExample]):
    """Some questions, by number, as a batch takes them.

    Args:
        content: What was read.
        numbers: The questions.
        preprocessing: Brings pictures to the size of the net's input; None if there are none.
        written: Whether entries have what people know of them.
    """

    def __init__(
        self, content: Content, numbers: Int[np.ndarray, " k"], preprocessing: Preprocessing | None, *, written: bool
    ) -> None:
        self.content = content
        self.numbers = numbers
        self.preprocessing = preprocessing
        self.written = written

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        number, content = int(self.numbers[place]), self.content
        asked = content.asked
        split = int(asked.splits[number])
        made = QuestionExample(
            question=content.questions[number],
            id=asked.ids[number],
            answer=int(content.answers[number]),
            kind="" if asked.kinds is None else asked.kinds[number],
            split=SPLITS[split] if split != NONE else "",
            written=self._written(number) if self.written else None,
        )
        if content.passages is None:
            return self._with_picture(made, number)
        span = None if content.spans is None or not asked.answers[number] else tuple(content.spans[number].tolist())
        return replace(made, passage=content.passages[number], span=span, links=self._links(number))

    def _with_picture(self, made: QuestionExample, number: int) -> QuestionExample:
        asked, preprocessing = self.content.asked, self.preprocessing
        assert asked.pixels is not None
        assert preprocessing is not None
        own = Picture(torch.as_tensor(asked.pixels[number]), -1, made.id, made.split)
        size, regions, written = (own.pixels.shape[1], own.pixels.shape[2]), None, made.written
        if written is not None:
            written = replace(written, original=OriginalImage(asked.pixels, number, preprocessing.seen(*size)))
        if asked.boxes is not None:
            boxes = np.array(asked.boxes[number], dtype=np.float32).reshape(-1, 4)
            regions = preprocessing.shares(boxes, *size).tolist()
        return replace(made, pixels=preprocessing(own).pixels, regions=regions, written=written)

    def _links(self, number: int) -> list[tuple[int, int]] | None:
        """Links of words as links of tokens."""
        asked = self.content.asked
        if asked.links is None or asked.passages is None:
            return None
        of_question, of_passage = (
            tokens_of_words(text, self.content.language.tokeniser.encode(text))
            for text in (asked.questions[number], asked.passages[number])
        )
        return [(q, p) for a, b in asked.links[number] for q in of_question[a] for p in of_passage[b]]

    def _written(self, number: int) -> Wording:
        asked, encode = self.content.asked, self.content.language.tokeniser.encode
        question, passage = asked.questions[number], None if asked.passages is None else asked.passages[number]
        return Wording(
            question=question,
            answer=asked.answers[number],
            passage=passage,
            spans=None if passage is None else tuple(encode(passage).spans) or ((0, len(passage)),),
            question_spans=tuple(encode(question).spans) or ((0, len(question)),),
        )
