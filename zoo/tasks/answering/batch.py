"""Batches of questions about pictures, passages and premises, as nets, the tasks and maps see them.

The type of a batch says whether it is for training (`VQABatch[None]`) or for people (`ReadableVQABatch`), which is made
for evaluation, prediction and maps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, Generic, Self, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped, UInt8
from torch import Tensor

from zoo.data.transfer import to_device
from zoo.nn.images.image_input import ImageInput, OriginalImage
from zoo.tasks.seq2seq.batch import all_known
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.vision.batch import normalize

Link = tuple[int, int]
"""A token of the question and a token of the passage that decides what is right, each by its place in its text."""
Span = tuple[int, int]
"""The first and the last token of an answer in its passage."""
UNKNOWN = -1
"""The answer of a question whose answer is not known."""


@dataclass(frozen=True, kw_only=True)
class WrittenQuestion:
    """A question as people read it.

    Args:
        question: The question, or hypothesis.
        answer: The answer, or label; "" if it is not known.
        question_spans: The characters of each token of the question.
    """

    question: str
    answer: str
    question_spans: Sequence[tuple[int, int]]

    @property
    def question_pieces(self) -> list[str]:
        """The tokens of the question as they stand there."""
        return split_text(self.question, self.question_spans)


@dataclass(frozen=True, kw_only=True)
class WrittenPictureQuestion(WrittenQuestion):
    """A question about a picture as people read it.

    Args:
        original: The picture itself, for drawing.
    """

    original: OriginalImage


@dataclass(frozen=True, kw_only=True)
class WrittenTextQuestion(WrittenQuestion):
    """A question about a passage, or a hypothesis and its premise, as people read them.

    Args:
        passage: The passage, or premise.
        spans: The characters of each token of the passage.
    """

    passage: str
    spans: Sequence[tuple[int, int]]

    @property
    def passage_pieces(self) -> list[str]:
        """The tokens of the passage as they stand there."""
        return split_text(self.passage, self.spans)

    def text_between(self, first: int, last: int) -> str:
        """Returns what stands in the passage from one token to another."""
        return self.passage[self.spans[first][0] : self.spans[last][1]]


def split_text(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Returns the parts of a text without white space around them."""
    return [text[start:end].strip() or text[start:end] for start, end in spans]


@dataclass(frozen=True, eq=False)
class QuestionExample(ABC):
    """A question, or hypothesis.

    Args:
        question: Numbers of the tokens, at least one.
        id: Name of the question.
        kind: Kind of the question, such as "colour"; "" if there are no kinds.
        split: train, val or test, or "" if it is in none.
    """

    question: Sequence[int]
    id: str
    _: KW_ONLY
    kind: str = ""
    split: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class VQAExample(QuestionExample):
    """A question about a picture.

    Args:
        pixels: The picture in the size of the net's input.
        answer: Number of the answer; `UNKNOWN` if it is not known.
        regions: Boxes of the picture that decide the answer: top, left, bottom and right as shares of the picture. None
            if they are not known.
        written: The question as people read it; None in training.
    """

    pixels: UInt8[Tensor, "3 h w"]
    answer: int = UNKNOWN
    regions: Sequence[Sequence[float]] | None = None
    written: WrittenPictureQuestion | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class TextExample(QuestionExample):
    """A question about a passage, or a hypothesis and its premise, which is the passage.

    Args:
        passage: Numbers of the passage's tokens, at least one.
        links: Gold attention between question and passage; None if it is not known.
        written: Both texts as people read them; None in training.
    """

    passage: Sequence[int]
    links: Sequence[Link] | None = None
    written: WrittenTextQuestion | None = None

    def shorten(self, length: int) -> Self:
        """Returns the first tokens of both texts, for the net."""
        question, passage = self.question[:length], self.passage[:length]
        return replace(self, question=question, passage=passage, links=None, written=None)


@dataclass(frozen=True, eq=False, kw_only=True)
class ExtractiveQAExample(TextExample):
    """A question whose answer is a part of a passage.

    Args:
        span: The answer; None if it is not known.
    """

    span: Span | None = None

    def shorten(self, length: int) -> Self:
        span = None if self.span is None else (min(self.span[0], length - 1), min(self.span[1], length - 1))
        return replace(super().shorten(length), span=span)


@dataclass(frozen=True, eq=False, kw_only=True)
class NLIExample(TextExample):
    """A premise and a hypothesis.

    Args:
        answer: Number of the label; `UNKNOWN` if it is not known.
    """

    answer: int = UNKNOWN


W = TypeVar("W", covariant=True)
"""None for a batch of training, and a tuple with a `WrittenQuestion` for each example of a batch for people."""


@dataclass(frozen=True, eq=False, kw_only=True)
class QABatch(ABC, Generic[W]):
    """A batch of questions.

    Args:
        question: The questions, or hypotheses.
        ids, kinds, splits: Of each question.
        written: The questions as people read them; None in training.
    """

    question: Source
    ids: tuple[str, ...]
    kinds: tuple[str, ...]
    splits: tuple[str, ...]
    written: W

    def __len__(self) -> int:
        return len(self.ids)

    @property
    @abstractmethod
    def targets(self) -> Int[Tensor, "b *two"]:
        """The number of each answer or label, or the first and the last token of each; `UNKNOWN` if not known."""

    @property
    def is_known(self) -> Bool[Tensor, " b"]:
        """The mask of the questions whose answers are known."""
        return (self.targets >= 0).view(len(self), -1).all(1)

    @abstractmethod
    def select(self, numbers: Int[Tensor, " s"]) -> QABatch[None]:
        """Returns some of the questions, without the padding that none of them needs, for the net."""

    @abstractmethod
    def trim_output(self, output: Any) -> Shaped[Tensor, "1 *n"]:
        """Returns, of what a net gives for a batch that begins like this one, that of the first question."""

    def to(self, device: torch.device | str) -> Self:
        return to_device(self, device)

    def _select_questions(self, numbers: Int[Tensor, " s"]) -> dict[str, Any]:
        """Returns the fields that all batches have, of some of the questions."""
        rows = numbers.tolist()
        names = {name: tuple(getattr(self, name)[row] for row in rows) for name in ("ids", "kinds", "splits")}
        return {"question": self.question.select(numbers), "written": None, **names}


@dataclass(frozen=True, eq=False, kw_only=True)
class VQABatch(QABatch[W]):
    """A batch of questions about pictures.

    Args:
        pixels: Normalised pixels of the pictures.
        answers: Number of each answer; `UNKNOWN` if it is not known.
        answer_names: All answers by their numbers.
        regions: Boxes that decide, as shares of each picture, with empty boxes where there are fewer; None if they are
            not known.
    """

    pixels: Float[Tensor, "b 3 h w"]
    answers: Int[Tensor, " b"]
    answer_names: tuple[str, ...] = ()
    regions: Float[Tensor, "b r 4"] | None = None

    @classmethod
    def collate(
        cls,
        examples: Sequence[VQAExample],
        *,
        answer_names: tuple[str, ...] = (),
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        std: Sequence[float] = (1.0, 1.0, 1.0),
    ) -> VQABatch[Any]:
        """Collates questions about pictures of one size, in their order.

        Args:
            examples: The questions.
            answer_names: All answers by their numbers.
            mean, std: Of each channel, by which pixels (from 0 to 1) are normalised.
        """
        regions = all_known([example.regions for example in examples])
        return cls(
            **_collate_questions(examples, [example.written for example in examples]),
            pixels=normalize(torch.stack([example.pixels for example in examples]), mean, std),
            answers=torch.tensor([example.answer for example in examples]),
            answer_names=answer_names,
            regions=None if regions is None else _pad_boxes(regions),
        )

    @cached_property
    def picture(self) -> ImageInput:
        """The pictures as an encoder reads them."""
        return ImageInput(pixels=self.pixels)

    @property
    def targets(self) -> Int[Tensor, " b"]:
        return self.answers

    def select(self, numbers: Int[Tensor, " s"]) -> VQABatch[None]:
        return VQABatch(**self._select_questions(numbers), pixels=self.pixels[numbers], answers=self.answers[numbers])

    def trim_output(self, output: Tensor) -> Float[Tensor, "1 answers"]:
        return output[:1]


@dataclass(frozen=True, eq=False, kw_only=True)
class TextBatch(QABatch[W]):
    """A batch of questions about passages, or of hypotheses about premises.

    Args:
        passage: The passages, or premises.
        gold: Pairs of a question's token and a passage's token that decide; None if they are not known.
    """

    passage: Source
    gold: Bool[Tensor, "b m n"] | None = None

    @abstractmethod
    def select(self, numbers: Int[Tensor, " s"]) -> TextBatch[None]: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class ExtractiveQABatch(TextBatch[W]):
    """A batch of questions whose answers are parts of passages.

    Args:
        spans: The first and the last token of each answer; `UNKNOWN` if it is not known.
    """

    spans: Int[Tensor, "b 2"]

    @classmethod
    def collate(cls, examples: Sequence[ExtractiveQAExample]) -> ExtractiveQABatch[Any]:
        """Collates questions in their order."""
        spans = [(UNKNOWN, UNKNOWN) if example.span is None else example.span for example in examples]
        return cls(**_collate_texts(examples), spans=torch.tensor(spans))

    @property
    def targets(self) -> Int[Tensor, "b 2"]:
        return self.spans

    def select(self, numbers: Int[Tensor, " s"]) -> ExtractiveQABatch[None]:
        passage = self.passage.select(numbers)
        return ExtractiveQABatch(**self._select_questions(numbers), passage=passage, spans=self.spans[numbers])

    def trim_output(self, output: tuple[Tensor, Tensor]) -> Float[Tensor, "1 n"]:
        return torch.cat([logits[:1, : int(self.passage.lengths[0])] for logits in output])


@dataclass(frozen=True, eq=False, kw_only=True)
class NLIBatch(TextBatch[W]):
    """A batch of premises and hypotheses.

    Args:
        answers: Number of each label; `UNKNOWN` if it is not known.
        answer_names: All labels by their numbers.
    """

    answers: Int[Tensor, " b"]
    answer_names: tuple[str, ...] = ()

    @classmethod
    def collate(cls, examples: Sequence[NLIExample], *, answer_names: tuple[str, ...] = ()) -> NLIBatch[Any]:
        """Collates premises and hypotheses in their order.

        Args:
            examples: Both texts.
            answer_names: All labels by their numbers.
        """
        answers = torch.tensor([example.answer for example in examples])
        return cls(**_collate_texts(examples), answers=answers, answer_names=answer_names)

    @property
    def premise(self) -> Source:
        return self.passage

    @property
    def hypothesis(self) -> Source:
        return self.question

    @property
    def targets(self) -> Int[Tensor, " b"]:
        return self.answers

    def select(self, numbers: Int[Tensor, " s"]) -> NLIBatch[None]:
        passage = self.passage.select(numbers)
        return NLIBatch(**self._select_questions(numbers), passage=passage, answers=self.answers[numbers])

    def trim_output(self, output: Tensor) -> Float[Tensor, "1 answers"]:
        return output[:1]


ReadableQABatch: TypeAlias = QABatch[tuple[WrittenQuestion, ...]]
ReadableVQABatch: TypeAlias = VQABatch[tuple[WrittenPictureQuestion, ...]]
ReadableExtractiveQABatch: TypeAlias = ExtractiveQABatch[tuple[WrittenTextQuestion, ...]]
ReadableNLIBatch: TypeAlias = NLIBatch[tuple[WrittenTextQuestion, ...]]
ReadableTextBatch: TypeAlias = TextBatch[tuple[WrittenTextQuestion, ...]]


def _collate_questions(
    examples: Sequence[QuestionExample], written: Sequence[WrittenQuestion | None]
) -> dict[str, Any]:
    """Returns the fields of all batches."""
    readings = all_known(written)
    return {
        "question": _collate_text([example.question for example in examples]),
        "ids": tuple(example.id for example in examples),
        "kinds": tuple(example.kind for example in examples),
        "splits": tuple(example.split for example in examples),
        "written": None if readings is None else tuple(readings),
    }


def _collate_texts(examples: Sequence[TextExample]) -> dict[str, Any]:
    """Returns the fields of all batches of texts."""
    parts = _collate_questions(examples, [example.written for example in examples])
    passage = _collate_text([example.passage for example in examples])
    links = all_known([example.links for example in examples])
    gold = None if links is None else _mask_links(links, parts["question"], passage)
    return {**parts, "passage": passage, "gold": gold}


def _collate_text(rows: Sequence[Sequence[int]]) -> Source:
    text = Source.pad(rows)
    if not text.lengths.all():
        raise ValueError("a question, and a passage, must have a token")
    return text


def _mask_links(links: Sequence[Sequence[Link]], question: Source, passage: Source) -> Bool[Tensor, "b m n"]:
    gold = torch.zeros(*question.tokens.shape, passage.tokens.shape[1], dtype=torch.bool)
    places = [(number, *link) for number, pairs in enumerate(links) for link in pairs]
    if places:
        gold[tuple(torch.tensor(places).T)] = True
    return gold


def _pad_boxes(regions: Sequence[Sequence[Sequence[float]]]) -> Float[Tensor, "b r 4"]:
    padded = np.zeros((len(regions), max(map(len, regions), default=0), 4), dtype=np.float32)
    for row, boxes in zip(padded, regions, strict=True):
        row[: len(boxes)] = np.reshape(np.array(boxes, dtype=np.float32), (-1, 4))
    return torch.from_numpy(padded)
