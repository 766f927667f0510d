"""A batch of questions about pictures or texts, as nets, the task and maps see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from zoo.data.transfer import to_device
from zoo.nn.images.image_input import ImageInput, OriginalImage
from zoo.tasks.seq2seq.batch import all_known
from zoo.tasks.seq2seq.source import Source
from zoo.tasks.vision.batch import normalize

Link = tuple[int, int]
"""A token of the question and a token of the passage that decides what is right, each by its place in its text."""
UNKNOWN = -1
"""The answer of a question whose answer is not known."""


@dataclass(frozen=True)
class Wording:
    """A question as people read it, which training does not need.

    Args:
        question: The question, or hypothesis.
        answer: The answer, or label; "" if it is not known.
        passage: The passage, or premise; None if the question is about a picture.
        spans: The characters of each token of the passage; None likewise.
        question_spans: The characters of each token of the question.
        original: The picture itself, for drawing; None if the question is about a passage.
    """

    question: str
    answer: str
    passage: str | None = None
    spans: Sequence[tuple[int, int]] | None = None
    question_spans: Sequence[tuple[int, int]] = ()
    original: OriginalImage | None = None

    @property
    def question_pieces(self) -> list[str]:
        """The tokens of the question as they stand there."""
        return [self.question[start:end].strip() or self.question[start:end] for start, end in self.question_spans]

    @property
    def passage_pieces(self) -> list[str]:
        """The tokens of the passage as they stand there."""
        assert self.passage is not None
        assert self.spans is not None
        return [self.passage[start:end].strip() or self.passage[start:end] for start, end in self.spans]

    def between(self, first: int, last: int) -> str:
        """Returns what stands in the passage from one token to another."""
        assert self.passage is not None
        assert self.spans is not None
        return self.passage[self.spans[first][0] : self.spans[last][1]]


@dataclass(frozen=True, eq=False)
class QuestionExample:
    """A question about a picture or a passage; or a hypothesis and its premise, which is the passage.

    Args:
        question: Numbers of the tokens, at least one.
        id: Name of the question.
        pixels: The picture in the size of the net's input; None if the question is about a passage.
        passage: Numbers of the passage's tokens, at least one; None if the question is about a picture.
        answer: Number of the answer or label; `UNKNOWN` if it is not known, or is a span.
        span: The first and the last token of the answer in the passage; None if it is not known, or is no span.
        kind: Kind of the question, such as "colour"; "" if there are no kinds.
        split: train, val or test, or "" if it is in none.
        links: Gold attention between question and passage; None if it is not known.
        regions: Boxes of the picture that decide the answer: top, left, bottom and right as shares of the picture. None
            if they are not known.
        written: The question as people read it; None in training.
    """

    question: Sequence[int]
    id: str
    pixels: UInt8[Tensor, "3 h w"] | None = None
    passage: Sequence[int] | None = None
    answer: int = UNKNOWN
    span: tuple[int, int] | None = None
    kind: str = ""
    split: str = ""
    links: Sequence[Link] | None = None
    regions: Sequence[Sequence[float]] | None = None
    written: Wording | None = None

    def shortened(self, length: int) -> QuestionExample:
        """Returns the first tokens of both texts, for the net."""
        passage = None if self.passage is None else self.passage[:length]
        span = None if self.span is None else (min(self.span[0], length - 1), min(self.span[1], length - 1))
        return replace(self, question=self.question[:length], passage=passage, span=span, links=None, written=None)


@dataclass(frozen=True, eq=False)
class QABatch:
    """A batch of questions.

    Args:
        question: The questions, or hypotheses.
        picture: The pictures; None if the questions are about passages.
        passage: The passages, or premises; None if the questions are about pictures.
        answers: Number of each answer or label; `UNKNOWN` if it is not known.
        spans: The first and the last token of each answer, `UNKNOWN` where they are not known; None if none is known.
        ids, kinds, splits: Of each question.
        gold: Pairs of a question's token and a passage's token that decide; None if they are not known.
        regions: Boxes that decide, as shares of each picture, with empty boxes where there are fewer; None if they are
            not known.
        written: The questions as people read them; None in training.
        answer_names: All answers or labels by their numbers.
    """

    question: Source
    picture: ImageInput | None
    passage: Source | None
    answers: Int[Tensor, " b"]
    ids: tuple[str, ...]
    kinds: tuple[str, ...]
    splits: tuple[str, ...]
    spans: Int[Tensor, "b 2"] | None = None
    gold: Bool[Tensor, "b m n"] | None = None
    regions: Float[Tensor, "b r 4"] | None = None
    written: tuple[Wording, ...] | None = None
    answer_names: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        asked: Sequence[QuestionExample],
        *,
        answer_names: tuple[str, ...] = (),
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        std: Sequence[float] = (1.0, 1.0, 1.0),
    ) -> QABatch:
        """Collates questions in their order: all about pictures of one size, or all about passages.

        Args:
            asked: The questions.
            answer_names: All answers or labels by their numbers.
            mean, std: Of each channel, by which pixels (from 0 to 1) are normalised.
        """
        pixels, passages = all_known([each.pixels for each in asked]), all_known([each.passage for each in asked])
        if (pixels is None) == (passages is None):
            raise ValueError("the questions of a batch are all about pictures, or all about passages")
        question = Source.of([each.question for each in asked])
        passage = None if passages is None else Source.of(passages)
        for text in (question, passage):
            if text is not None and not text.lengths.all():
                raise ValueError("a question, and a passage, must have a token")
        spans = [(UNKNOWN, UNKNOWN) if each.span is None else each.span for each in asked]
        has_spans = any(each.span is not None for each in asked)
        links, regions = all_known([each.links for each in asked]), all_known([each.regions for each in asked])
        written = all_known([each.written for each in asked])
        return cls(
            question=question,
            picture=None if pixels is None else ImageInput(pixels=normalize(torch.stack(pixels), mean, std)),
            passage=passage,
            answers=torch.tensor([each.answer for each in asked]),
            ids=tuple(each.id for each in asked),
            kinds=tuple(each.kind for each in asked),
            splits=tuple(each.split for each in asked),
            spans=torch.tensor(spans) if has_spans else None,
            gold=None if links is None or passage is None else _gold(links, question, passage),
            regions=None if regions is None or pixels is None else _boxes(regions),
            written=None if written is None else tuple(written),
            answer_names=answer_names,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def first(self) -> QABatch:
        """Returns the first question alone, without the padding that it does not need, for the net."""
        only = torch.zeros(1, dtype=torch.int64, device=self.answers.device)
        return QABatch(
            question=self.question.select(only),
            picture=None if self.picture is None else self.picture.select(only),
            passage=None if self.passage is None else self.passage.select(only),
            answers=self.answers[only],
            ids=self.ids[:1],
            kinds=self.kinds[:1],
            splits=self.splits[:1],
        )

    def to(self, device: torch.device | str) -> QABatch:
        return to_device(self, device)


def _gold(links: Sequence[Sequence[Link]], question: Source, passage: Source) -> Bool[Tensor, "b m n"]:
    gold = torch.zeros(*question.tokens.shape, passage.tokens.shape[1], dtype=torch.bool)
    at = [(number, *link) for number, each in enumerate(links) for link in each]
    if at:
        gold[tuple(torch.tensor(at).T)] = True
    return gold


def _boxes(regions: Sequence[Sequence[Sequence[float]]]) -> Float[Tensor, "b r 4"]:
    boxes = np.zeros((len(regions), max(map(len, regions), default=0), 4), dtype=np.float32)
    for mine, each in zip(boxes, regions, strict=True):
        mine[: len(each)] = np.reshape(np.array(each, dtype=np.float32), (-1, 4))
    return torch.from_numpy(boxes)
