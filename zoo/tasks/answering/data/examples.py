"""What was read of questions, and the examples that batches are made of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Int

from zoo.data.ragged import RaggedArray
from zoo.data.splits import NONE, SPLITS
from zoo.nn.images.image_input import OriginalImage
from zoo.tasks.answering.batch import (
    ExtractiveQAExample,
    Link,
    NLIExample,
    QuestionExample,
    VQAExample,
    WrittenPictureQuestion,
    WrittenTextQuestion,
)
from zoo.tasks.answering.data.answer_set import (
    AnswerSet,
    Hypotheses,
    PassageQuestions,
    PictureQuestions,
    TextQuestions,
)
from zoo.tasks.seq2seq.text_codec import TextCodec
from zoo.tasks.vision.batch import Picture
from zoo.tasks.vision.data.transforms import Preprocessing
from zoo.text.tokens import tokens_of_words

Records = TypeVar("Records", bound=AnswerSet, covariant=True)
TextRecords = TypeVar("TextRecords", bound=TextQuestions, covariant=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class Content(Generic[Records]):
    """What was read; of questions about pictures it is all.

    Args:
        records: The questions.
        language: The language of questions and passages.
        questions: The tokens of each question.
        answer_names: All answers that a model can give, or labels; none if answers are spans.
        answers: The number of each answer; `UNKNOWN` if it is not known, or is none of those.
    """

    records: Records
    language: TextCodec
    questions: RaggedArray
    answer_names: tuple[str, ...]
    answers: Int[np.ndarray, " n"]

    @property
    def texts(self) -> list[RaggedArray]:
        """The tokens of all texts: questions, and passages."""
        return [self.questions]


@dataclass(frozen=True, eq=False, kw_only=True)
class TextContent(Content[TextRecords]):
    """What was read of hypotheses and their premises.

    Args:
        passages: The tokens of each passage, or premise.
    """

    passages: RaggedArray

    @property
    def texts(self) -> list[RaggedArray]:
        return [self.questions, self.passages]


@dataclass(frozen=True, eq=False, kw_only=True)
class PassageContent(TextContent[PassageQuestions]):
    """What was read of questions about passages.

    Args:
        spans: The first and the last token of each answer.
    """

    spans: Int[np.ndarray, "n 2"]


C = TypeVar("C", bound=Content[Any])
TextC = TypeVar("TextC", bound=TextContent[Any])


class ExampleView(Sequence[QuestionExample], Generic[C]):
    """Some questions, by number, as a batch takes them.

    Args:
        content: What was read.
        numbers: The questions.
        is_readable: Whether examples have what people read of them.
    """

    def __init__(self, content: C, numbers: Int[np.ndarray, " k"], *, is_readable: bool) -> None:
        self.content = content
        self.numbers = numbers
        self.is_readable = is_readable

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        return self.make_example(int(self.numbers[place]))

    @abstractmethod
    def make_example(self, number: int) -> QuestionExample:
        """Returns a question."""

    def _question_fields(self, number: int) -> dict[str, Any]:
        """Returns the fields that all examples have."""
        records = self.content.records
        split = int(records.splits[number])
        return {
            "question": self.content.questions[number],
            "id": records.ids[number],
            "kind": "" if records.kinds is None else records.kinds[number],
            "split": SPLITS[split] if split != NONE else "",
        }

    def _written_fields(self, number: int) -> dict[str, Any]:
        """Returns the fields that all questions have as people read them."""
        question = self.content.records.questions[number]
        answer = self.content.records.answers[number]
        return {"question": question, "answer": answer, "question_spans": self._token_spans(question)}

    def _token_spans(self, text: str) -> tuple[tuple[int, int], ...]:
        return tuple(self.content.language.tokeniser.encode(text).spans) or ((0, len(text)),)


class PictureExamples(ExampleView[Content[PictureQuestions]]):
    """Some questions about pictures.

    Args:
        preprocessing: Brings pictures to the size of the net's input.
    """

    def __init__(
        self,
        content: Content[PictureQuestions],
        numbers: Int[np.ndarray, " k"],
        preprocessing: Preprocessing,
        *,
        is_readable: bool,
    ) -> None:
        super().__init__(content, numbers, is_readable=is_readable)
        self.preprocessing = preprocessing

    def make_example(self, number: int) -> VQAExample:
        records, fields = self.content.records, self._question_fields(number)
        picture = Picture(torch.as_tensor(records.pixels[number]), -1, fields["id"], fields["split"])
        size = (picture.pixels.shape[1], picture.pixels.shape[2])
        written, regions = None, None
        if self.is_readable:
            original = OriginalImage(records.pixels, number, self.preprocessing.find_crop(*size))
            written = WrittenPictureQuestion(original=original, **self._written_fields(number))
        if records.boxes is not None:
            boxes = np.array(records.boxes[number], dtype=np.float32).reshape(-1, 4)
            regions = self.preprocessing.shares(boxes, *size).tolist()
        return VQAExample(
            pixels=self.preprocessing(picture).pixels,
            answer=int(self.content.answers[number]),
            regions=regions,
            written=written,
            **fields,
        )


class TextExamples(ExampleView[TextC]):
    """Some questions about passages, or hypotheses about premises."""

    def _text_fields(self, number: int) -> dict[str, Any]:
        """Returns the fields that all examples of texts have."""
        return {
            **self._question_fields(number),
            "passage": self.content.passages[number],
            "links": self._token_links(number),
            "written": self._make_readable(number) if self.is_readable else None,
        }

    def _make_readable(self, number: int) -> WrittenTextQuestion:
        passage = self.content.records.passages[number]
        return WrittenTextQuestion(passage=passage, spans=self._token_spans(passage), **self._written_fields(number))

    def _token_links(self, number: int) -> list[Link] | None:
        """Returns links of words as links of tokens."""
        records = self.content.records
        if records.links is None:
            return None
        of_question, of_passage = (
            tokens_of_words(text, self.content.language.tokeniser.encode(text))
            for text in (records.questions[number], records.passages[number])
        )
        return [(q, p) for a, b in records.links[number] for q in of_question[a] for p in of_passage[b]]


class PassageExamples(TextExamples[PassageContent]):
    """Some questions whose answers are parts of passages."""

    def make_example(self, number: int) -> ExtractiveQAExample:
        is_known = bool(self.content.records.answers[number])
        first, last = self.content.spans[number].tolist()
        return ExtractiveQAExample(span=(first, last) if is_known else None, **self._text_fields(number))


class PremiseExamples(TextExamples[TextContent[Hypotheses]]):
    """Some hypotheses and their premises."""

    def make_example(self, number: int) -> NLIExample:
        return NLIExample(answer=int(self.content.answers[number]), **self._text_fields(number))
