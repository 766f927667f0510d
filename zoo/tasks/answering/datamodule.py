"""Questions and answers as the trainer takes them: numbers of tokens in memory, pixels read on access."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
from jaxtyping import Bool, Int

from zoo.data.ragged import RaggedArray
from zoo.data.splits import NONE, TRAIN
from zoo.errors import CheckpointError, ConfigError, count_noun, join_names, warn
from zoo.tasks.answering.batch import UNKNOWN, ExtractiveQABatch, NLIBatch, TextExample, VQABatch
from zoo.tasks.answering.data.answer_set import About, AnswerSet, Hypotheses, PassageQuestions, PictureQuestions
from zoo.tasks.answering.data.answer_table import read_answer_table
from zoo.tasks.answering.data.examples import (
    Content,
    PassageContent,
    PassageExamples,
    PictureExamples,
    PremiseExamples,
    TextContent,
    TextExamples,
)
from zoo.tasks.base import TaskData
from zoo.tasks.batching import BatchOptions, Examples
from zoo.tasks.command_options import FOLDER, MOST_PIXELS, CommandOption, replace_given
from zoo.tasks.data_summary import Longest, Summary, Vocabulary, count_labels, count_splits, share_unknown
from zoo.tasks.length_limit import LONGEST_TEXT, LengthLimit
from zoo.tasks.seq2seq.dataset_encoder import DatasetEncoder, learned_language
from zoo.tasks.seq2seq.text_codec import SPECIALS, TextCodec
from zoo.tasks.seq2seq.text_codec import UNKNOWN as UNKNOWN_TOKEN
from zoo.tasks.vision.data.image_list import ReaderOptions
from zoo.tasks.vision.data.image_options import (
    MOST_INPUT,
    MOST_INPUT_PIXELS,
    PREPROCESSING,
    ImageOptions,
    check_input_pixels,
    preprocessing_state,
)
from zoo.tasks.vision.data.transforms import Resize
from zoo.text import TOKENISER, VOCABULARY, Tokenizer, Tokens, new_tokenizer
from zoo.text.tokenizer_factory import Kind
from zoo.text.vocabulary import Policy
from zoo.types import Fraction, PositiveFloat, PositiveFraction, PositiveInt, validate_ranges

Records = TypeVar("Records", bound=AnswerSet)


@dataclass(frozen=True)
class AnswerSource(Generic[Records]):
    """Where questions come from.

    Args:
        read: `(reading) -> AnswerSet` of the user's own, `() -> AnswerSet` of others.
        reading: How files of the user's own are read.
        is_own: Whether they are the user's own, whose lengths are not known beforehand.
        place: The table, for messages.
    """

    read: Callable[..., Records]
    reading: ReaderOptions = field(default_factory=ReaderOptions)
    is_own: bool = False
    place: Path | None = None


MOST_TOKENS = 4_000
"""Default of the most tokens of a text of the user's own."""


NO_PICTURES: Mapping[str, Any] = {
    "height": 0,
    "width": 0,
    "mean": [],
    "std": [],
    "resize": "squash",
    "share": 1.0,
}
"""The preprocessing in a checkpoint of a model that reads no pictures."""


@validate_ranges
class AnswerData(TaskData):
    """The base class of batches of questions, whose answers are some of a set. All texts have one vocabulary.

    Args:
        source: Where the questions come from.
        batching: How they become batches.
        tokeniser: What texts are split into; subwords are learned from the training split.
        lower: Whether texts are read in small letters.
        subwords: The most subwords.
        min_count: Words and characters that are rarer in training are unknown.
        max_vocabulary: The most tokens, the most frequent ones; null: all.
        vocabulary: Tokens of a model that starts from a checkpoint and keeps its tokeniser (`zoo.text.vocabulary`).
        max_length: The most tokens of a text of the user's own; a longer one is bad. null: no limit.
        max_tokens: The most tokens of a batch of texts, each counting as much as the longest of a question or passage;
            null: no limit.
        max_answers: The most answers that a model can give, the most frequent ones in training; null: all.
        mean: Mean of each channel of pictures, for pixels between 0 and 1. Default: ImageNet's.
        std: Standard deviation of each channel, likewise. Default: ImageNet's.
        height: Height of the net's input. Default: that of the pictures, if all have the same size.
        width: Width of the net's input, likewise.
        resize: How pictures of other sizes are resized (`zoo.tasks.vision.data.transforms.Preprocessing`).
        share: Share of the shorter side that is kept if resize=crop.
    """

    input_options: ClassVar[Sequence[CommandOption]] = (LONGEST_TEXT, FOLDER, MOST_PIXELS, MOST_INPUT)
    about: ClassVar[About]
    """What the questions are about, which decides the columns of a table."""
    folder: Path | None = None
    """Where the paths of pictures begin in a table for a trained model; None: in its folder."""
    most_pixels: int | None = None
    """The most pixels of a picture there; None: as in training."""
    most_input_pixels: int = MOST_INPUT_PIXELS
    """Largest size to which the net of a checkpoint may have pictures resized."""
    longest_text: int | None = None
    """The most tokens of a text that a trained model reads; None: as in training."""

    source: AnswerSource[Any]

    def __init__(
        self,
        source: AnswerSource[Any],
        batching: BatchOptions,
        *,
        tokeniser: Kind = "words",
        lower: bool = True,
        subwords: PositiveInt = 8000,
        min_count: PositiveInt = 1,
        max_vocabulary: Annotated[int, "> 4"] | None = None,
        vocabulary: Policy = "unite",
        max_length: PositiveInt | None = MOST_TOKENS,
        max_tokens: PositiveInt | None = None,
        max_answers: PositiveInt | None = None,
        mean: Sequence[Fraction] | None = None,
        std: Sequence[PositiveFloat] | None = None,
        height: PositiveInt | None = None,
        width: PositiveInt | None = None,
        resize: Resize = "squash",
        share: PositiveFraction = 1.0,
    ) -> None:
        super().__init__(source, batching)
        self.tokeniser: Tokenizer = new_tokenizer(tokeniser, lower=lower, subwords=subwords)
        self.min_count = min_count
        self.max_vocabulary = max_vocabulary
        self.vocabulary = vocabulary
        self.max_length = max_length
        self.max_tokens = max_tokens
        self.max_answers = max_answers
        self.options = ImageOptions(mean, std, height, width, resize, share)
        self.on_bad_row = source.reading.on_bad_row
        self._origin: TextCodec | None = None
        """Language of the checkpoint that training starts from, whose tokeniser is kept."""

    def read(self) -> Content[Any]:
        records = self.read_records()
        learns = records.splits == TRAIN
        if self.trained is None:
            texts = (
                text
                for texts in records.texts.values()
                for text, is_learned in zip(texts, learns, strict=True)
                if is_learned
            )
            self.tokeniser = self.tokeniser.fit(texts) if self._origin is None else self._origin.tokeniser
        numbers: dict[str, int] = {}
        encoders = {column: DatasetEncoder(self.tokeniser, numbers) for column in records.texts}
        for column, texts_of_column in records.texts.items():
            for text in texts_of_column:
                encoders[column].add(text)
        is_short = self._find_short(records, encoders)
        learns &= is_short
        language, names = self._language(list(encoders.values()), learns), self.answer_names(records, learns)
        rows = {column: encoder.encode(language) for column, encoder in encoders.items()}
        if not is_short.all():
            chosen = np.flatnonzero(is_short)
            records, learns = records.select(chosen), learns[is_short]
            rows = {column: texts.select(chosen) for column, texts in rows.items()}
        number_of = {name: number for number, name in enumerate(names)}
        answers = np.array([number_of.get(answer, UNKNOWN) for answer in records.answers], dtype=np.int64)
        records = self.leave_out_unlearned(records, answers, learns)
        return self.make_content(records, list(rows.values()), language=language, answer_names=names, answers=answers)

    def read_records(self) -> AnswerSet:
        """Returns the questions of the source."""
        source: AnswerSource[AnswerSet] = self.source
        return source.read(reading=source.reading) if source.is_own else source.read()

    @abstractmethod
    def make_content(self, records: Any, rows: Sequence[RaggedArray], **fields: Any) -> Content[Any]:
        """Returns what was read.

        Args:
            records: The questions.
            rows: The tokens of the texts of each column, in the order of `AnswerSet.texts`.
            fields: The other fields of all contents.
        """

    def answer_names(self, records: AnswerSet, learns: Bool[np.ndarray, " n"]) -> tuple[str, ...]:
        """Returns the answers of the training split, the most frequent first; equally frequent ones in their order."""
        if self.trained is not None:
            return tuple(self.trained["answers"])
        counts = Counter(answer for answer, is_learned in zip(records.answers, learns, strict=True) if is_learned)
        ranked = sorted(counts, key=lambda answer: (-counts[answer], answer))[: self.max_answers]
        if len(ranked) < 2:
            raise ConfigError("the training questions have fewer than two answers: there is nothing to choose from")
        return tuple(ranked)

    def leave_out_unlearned(
        self, records: Records, answers: Int[np.ndarray, " n"], learns: Bool[np.ndarray, " n"]
    ) -> Records:
        """Returns the questions; those for training whose answers no model can give are in no split. Warns of both."""
        if self.trained is not None:
            _warn_of_unknown(records, answers)
        is_strange = learns & (answers == UNKNOWN)
        if not is_strange.any():
            return records
        warn(f"{is_strange.sum():,} of {learns.sum():,} training questions are left out by data.max_answers.")
        return replace(records, splits=np.where(is_strange, NONE, records.splits))

    def names(self, content: Content[Any]) -> Mapping[str, Sequence[str]]:
        return {"tokens": content.language.vocabulary.tokens, "answers": content.answer_names}

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        return {"words": len(state["tokens"]), "answers": len(state["answers"])}

    form: ClassVar[Mapping[str, Any]] = {
        "tokens": VOCABULARY,
        "answers": [str],
        "tokeniser": TOKENISER,
        **PREPROCESSING,
        "height": int,  # 0 without pictures
        "width": int,
    }

    def state(self) -> dict[str, Any]:
        """Returns vocabulary, answers, tokeniser and preprocessing, for a checkpoint."""
        content: Content[Any] = self.content
        return {**super().state(), "tokeniser": content.language.tokeniser.state(), **NO_PICTURES}

    def restore(self, state: dict[str, Any]) -> None:
        """Reads the data with a checkpoint's language, answers and preprocessing instead of its own."""
        if len(set(state["answers"])) < len(state["answers"]):
            raise CheckpointError("the checkpoint is damaged: it has an answer twice")
        super().restore(state)
        self.tokeniser = TextCodec.from_state(state["tokeniser"], state["tokens"]).tokeniser

    def inherit_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        if "answers" in state:  # otherwise a model of other data, whose weights alone are continued
            self._origin = TextCodec.from_state(state["tokeniser"], state["tokens"])

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> AnswerSource[Any]:
        """Returns the source of the user's own questions: a table."""
        if len(paths) > 1:
            raise ConfigError(f"{paths[1]}: questions are read from one table; give one")
        options = {"on_bad_row": self.on_bad_row, "encoding": self.encoding, "most_pixels": self.most_pixels}
        reading = replace_given(self.source.reading, **options)
        read = partial(read_answer_table, paths[0], self.about, folder=self.folder, split_seed=None)
        return AnswerSource(read, reading, is_own=True, place=paths[0])

    def summary(self) -> Summary:
        content: Content[Any] = self.content
        splits, ids = content.records.splits, content.records.ids
        return Summary(
            noun="question",
            sizes=count_splits(splits),
            spare=int((splits == NONE).sum()),
            labels=count_labels(content.answer_names, content.answers, splits),
            longest=Longest.find("token", ids, np.max([texts.lengths for texts in content.texts], axis=0)),
            vocabularies=[
                Vocabulary(
                    "tokens", len(content.language) - len(SPECIALS), share_unknown(content.texts, splits, UNKNOWN_TOKEN)
                )
            ],
        )

    def empty_hint(self, split: str) -> str:
        return "Give questions with answers there"

    @abstractmethod
    def examples(self, split: str, *, training: bool = False) -> Examples:
        """Returns the questions of one split in their order, with what people read of them unless for training."""

    def _find_short(self, records: AnswerSet, encoders: Mapping[str, DatasetEncoder]) -> Bool[np.ndarray, " n"]:
        """Returns the mask of the user's own questions that have no text with too many tokens."""
        lengths = {column: encoder.texts.lengths for column, encoder in encoders.items()}
        return LengthLimit.from_data(self, self.max_length, "question").select_short(records.ids, lengths)

    def _language(self, encoders: Sequence[DatasetEncoder], learns: Bool[np.ndarray, " n"]) -> TextCodec:
        if self.trained is not None:
            return TextCodec.from_state(self.trained["tokeniser"], self.trained["tokens"])
        return learned_language(
            encoders,
            learns,
            min_count=self.min_count,
            max_size=self.max_vocabulary,
            origin=self._origin,
            policy=self.vocabulary,
        )


class VQAData(AnswerData):
    """Batches of questions about pictures. For the arguments see `AnswerData`."""

    about = "picture"
    source: AnswerSource[PictureQuestions]

    def read_records(self) -> PictureQuestions:
        source, fit = self.source, self.options.fit(3)
        records = source.read(reading=replace(source.reading, fit=fit)) if source.is_own else source.read()
        self.preprocessing = self.options.make_preprocessing(3, records.size)
        return records

    def make_content(
        self, records: PictureQuestions, rows: Sequence[RaggedArray], **fields: Any
    ) -> Content[PictureQuestions]:
        return Content(records=records, questions=rows[0], **fields)

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        return {**super().sizes_of(state), "height": state["height"], "width": state["width"]}

    def state(self) -> dict[str, Any]:
        return {**super().state(), **preprocessing_state(self.preprocessing)}

    def check_input_sizes(self, state: Mapping[str, Any]) -> None:
        check_input_pixels(state, self.most_input_pixels)

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.options = ImageOptions.from_state(state)

    def examples(self, split: str, *, training: bool = False) -> Examples:
        content: Content[PictureQuestions] = self.content
        numbers, preprocessing = content.records.numbers(split), self.preprocessing
        return Examples(
            entries=PictureExamples(content, numbers, preprocessing, is_readable=not training),
            collate=partial(
                VQABatch.collate, answer_names=content.answer_names, mean=preprocessing.mean, std=preprocessing.std
            ),
        )


class TextData(AnswerData):
    """The base class of batches of questions about texts. For the arguments see `AnswerData`."""

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> AnswerSource[Any]:
        if self.folder is not None and len(paths) == 1:
            raise ConfigError(f"--folder={self.folder}: these questions are about texts, not files; leave it out")
        return super().input_source(paths, state)

    def _make_examples(
        self,
        view: Callable[..., TextExamples[Any]],
        split: str,
        collate: Callable[[list[Any]], Any],
        *,
        training: bool,
    ) -> Examples:
        content: TextContent[Any] = self.content
        numbers = content.records.numbers(split)
        lengths = np.maximum(content.questions.lengths, content.passages.lengths)[numbers]
        return Examples(
            entries=view(content, numbers, is_readable=not training),
            collate=collate,
            lengths=lengths.tolist(),
            max_tokens=self.max_tokens,
            shorten=TextExample.shorten,
        )


class ExtractiveQAData(TextData):
    """Batches of questions whose answers are parts of passages. For the arguments see `AnswerData`."""

    about = "passage"

    def make_content(self, records: PassageQuestions, rows: Sequence[RaggedArray], **fields: Any) -> PassageContent:
        questions, passages = rows
        spans = self._locate_answers(records)
        return PassageContent(records=records, questions=questions, passages=passages, spans=spans, **fields)

    def answer_names(self, records: AnswerSet, learns: Bool[np.ndarray, " n"]) -> tuple[str, ...]:
        """Returns none: answers are parts of passages."""
        return () if self.trained is None else tuple(self.trained["answers"])

    def leave_out_unlearned(
        self, records: Records, answers: Int[np.ndarray, " n"], learns: Bool[np.ndarray, " n"]
    ) -> Records:
        """Returns the questions: any part of a passage can be an answer."""
        return records

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        return {"words": len(state["tokens"])}

    def examples(self, split: str, *, training: bool = False) -> Examples:
        return self._make_examples(PassageExamples, split, ExtractiveQABatch.collate, training=training)

    def _locate_answers(self, records: PassageQuestions) -> Int[np.ndarray, "n 2"]:
        """Returns the tokens that lie in the characters of each answer; 0 and 0 where it is not known."""
        places = np.zeros((len(records), 2), dtype=np.int64)
        rows = zip(places, records.passages, records.spans, records.answers, strict=True)
        for row, passage, (start, end), answer in rows:
            if answer:
                row[:] = _locate_tokens(self.tokeniser.encode(passage), start, end)
        return places


class NLIData(TextData):
    """Batches of premises and hypotheses. For the arguments see `AnswerData`."""

    about = "premise"

    def make_content(self, records: Hypotheses, rows: Sequence[RaggedArray], **fields: Any) -> TextContent[Hypotheses]:
        questions, passages = rows
        return TextContent(records=records, questions=questions, passages=passages, **fields)

    def examples(self, split: str, *, training: bool = False) -> Examples:
        content: TextContent[Hypotheses] = self.content
        collate = partial(NLIBatch.collate, answer_names=content.answer_names)
        return self._make_examples(PremiseExamples, split, collate, training=training)


def _warn_of_unknown(records: AnswerSet, answers: Int[np.ndarray, " n"]) -> None:
    """Warns of given answers that are none that the model can give."""
    pairs = zip(records.answers, answers, strict=True)
    strange = [answer for answer, number in pairs if answer and number == UNKNOWN]
    if strange:
        counts = count_noun(len(strange), "question counts", "questions count")
        warn(f"{counts} as wrong, because {join_names(sorted(set(strange)))} no answer that the model gives.")


def _locate_tokens(tokens: Tokens, start: int, end: int) -> tuple[int, int]:
    """Returns the first and the last token that have a character of a span."""
    inside = [number for number, (a, b) in enumerate(tokens.spans) if a < end and b > start]
    return (inside[0], inside[-1]) if inside else (0, 0)
