"""Questions and answers as the trainer takes them: numbers of tokens in memory, pixels read on access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int

from zoo.data.splits import NONE, TRAIN
from zoo.errors import CheckpointError, ConfigError, count_noun, join_names, warn
from zoo.tasks.answering.batch import UNKNOWN, QABatch, QuestionExample
from zoo.tasks.answering.data.answer_set import COLUMNS, About, AnswerSet
from zoo.tasks.answering.data.answer_table import read_answer_table
from zoo.tasks.answering.data.examples import Content, Entries
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


@dataclass(frozen=True)
class AnswerSource:
    """Where questions come from.

    Args:
        about: What they are about.
        read: `(reading) -> AnswerSet` of the user's own, `() -> AnswerSet` of others.
        reading: How files of the user's own are read.
        is_own: Whether they are the user's own, whose lengths are not known beforehand.
        place: The table, for messages.
    """

    about: About
    read: Callable[..., AnswerSet]
    reading: ReaderOptions = field(default_factory=ReaderOptions)
    is_own: bool = False
    place: Path | None = None


MOST_TOKENS = 4_000
"""Default of the most tokens of a text of the user's own."""


@validate_ranges
class AnswerData(TaskData):
    """Batches of questions about pictures, passages or premises. Questions and passages have one vocabulary.

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
    folder: Path | None = None
    """Where the paths of pictures begin in a table for a trained model; None: in its folder."""
    most_pixels: int | None = None
    """The most pixels of a picture there; None: as in training."""
    most_input_pixels: int = MOST_INPUT_PIXELS
    """Largest size to which the net of a checkpoint may have pictures resized."""
    longest_text: int | None = None
    """The most tokens of a text that a trained model reads; None: as in training."""

    source: AnswerSource

    def __init__(
        self,
        source: AnswerSource,
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

    @property
    def about(self) -> About:
        """What the questions are about."""
        return self.source.about

    def read(self) -> Content:
        source = self.source
        fit = self.options.fit(3) if self.about == "picture" else None
        asked = source.read(reading=replace(source.reading, fit=fit)) if source.is_own else source.read()
        if asked.about == "picture":
            self.preprocessing = self.options.preprocessing(3, asked.size)
        learns = asked.splits == TRAIN
        if self.trained is None:
            texts = [asked.questions, *([] if asked.passages is None else [asked.passages])]
            learned = (text for each in texts for text, does in zip(each, learns, strict=True) if does)
            self.tokeniser = self.tokeniser.fit(learned) if self._origin is None else self._origin.tokeniser
        numbers: dict[str, int] = {}
        question, passage = (DatasetEncoder(self.tokeniser, numbers) for _ in range(2))
        for text in asked.questions:
            question.add(text)
        for text in asked.passages or ():
            passage.add(text)
        encoders = [question] if asked.passages is None else [question, passage]
        kept = self._short_enough(asked, encoders)
        learns &= kept
        language, names = self._language(encoders, learns), self._answer_names(asked, learns)
        rows = [each.encoded(language) for each in encoders]
        if not kept.all():
            chosen = np.flatnonzero(kept)
            asked, learns, rows = asked.select(chosen), learns[kept], [each.select(chosen) for each in rows]
        number_of = {name: number for number, name in enumerate(names)}
        answers = np.array([number_of.get(answer, UNKNOWN) for answer in asked.answers], dtype=np.int64)
        if self.trained is not None and asked.spans is None:
            _warn_of_unknown(asked, answers)
        strange = learns & (answers == UNKNOWN)
        if asked.spans is None and strange.any():
            warn(f"{strange.sum():,} of {learns.sum():,} training questions are left out by data.max_answers.")
            asked = replace(asked, splits=np.where(strange, NONE, asked.splits))
        return Content(
            asked=asked,
            language=language,
            questions=rows[0],
            passages=None if asked.passages is None else rows[1],
            answer_names=names,
            answers=answers,
            spans=self._spans(asked),
        )

    def names(self, content: Content) -> Mapping[str, Sequence[str]]:
        return {"tokens": content.language.vocabulary.tokens, "answers": content.answer_names}

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        found = {"words": len(state["tokens"])}
        if state["answers"]:  # otherwise they are parts of passages
            found["answers"] = len(state["answers"])
        return found | ({"height": state["height"], "width": state["width"]} if state["height"] else {})

    form: ClassVar[Mapping[str, Any]] = {
        "tokens": VOCABULARY,
        "answers": [str],
        "tokeniser": TOKENISER,
        **PREPROCESSING,
        "height": int,  # 0 without pictures
        "width": int,
    }

    def state(self) -> dict[str, Any]:
        """Vocabulary, answers, tokeniser and preprocessing, for a checkpoint."""
        content: Content = self.content
        found: dict[str, Any] = {"height": 0, "width": 0, "mean": [], "std": [], "resize": "squash", "share": 1.0}
        if self.about == "picture":
            found = preprocessing_state(self.preprocessing)
        return {**super().state(), "tokeniser": content.language.tokeniser.state(), **found}

    def check_input_sizes(self, state: Mapping[str, Any]) -> None:
        check_input_pixels(state, self.most_input_pixels)

    def restore(self, state: dict[str, Any]) -> None:
        """Reads the data with a checkpoint's language, answers and preprocessing instead of its own."""
        if len(set(state["answers"])) < len(state["answers"]):
            raise CheckpointError("the checkpoint is damaged: it has an answer twice")
        super().restore(state)
        self.tokeniser = TextCodec.from_state(state["tokeniser"], state["tokens"]).tokeniser
        if self.about == "picture":
            self.options = ImageOptions.from_state(state)

    def inherit_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        if "answers" in state:  # otherwise a model of other data, whose weights alone are continued
            self._origin = TextCodec.from_state(state["tokeniser"], state["tokens"])

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> AnswerSource:
        """The user's own questions: a table."""
        if len(paths) > 1:
            raise ConfigError(f"{paths[1]}: questions are read from one table; give one")
        if self.folder is not None and self.about != "picture":
            raise ConfigError(f"--folder={self.folder}: these questions are about texts, not files; leave it out")
        given = {"on_bad_row": self.on_bad_row, "encoding": self.encoding, "most_pixels": self.most_pixels}
        reading = replace_given(self.source.reading, **given)
        read = partial(read_answer_table, paths[0], self.about, folder=self.folder, split_seed=None)
        return AnswerSource(self.about, read, reading, is_own=True, place=paths[0])

    def summary(self) -> Summary:
        content: Content = self.content
        asked, texts = content.asked, [content.questions, *([] if content.passages is None else [content.passages])]
        unknown = share_unknown(texts, asked.splits, UNKNOWN_TOKEN)
        return Summary(
            noun="question",
            sizes=count_splits(asked.splits),
            spare=int((asked.splits == NONE).sum()),
            labels=count_labels(content.answer_names, content.answers, asked.splits),
            longest=Longest.find("token", asked.ids, np.max([each.lengths for each in texts], axis=0)),
            vocabularies=[Vocabulary("tokens", len(content.language) - len(SPECIALS), unknown)],
        )

    def empty_hint(self, split: str) -> str:
        return "Give questions with answers there"

    def examples(self, split: str, *, training: bool = False) -> Examples:
        """The questions of one split in their order."""
        content: Content = self.content
        numbers = content.asked.numbers(split)
        entries = Entries(content, numbers, getattr(self, "preprocessing", None), written=not training)
        if self.about == "picture":
            seen = self.preprocessing
            collate = partial(QABatch.of, answer_names=content.answer_names, mean=seen.mean, std=seen.std)
            return Examples(entries=entries, collate=collate)
        assert content.passages is not None
        lengths = np.maximum(content.questions.lengths, content.passages.lengths)[numbers]
        collate = partial(QABatch.of, answer_names=content.answer_names)
        return Examples(
            entries=entries,
            collate=collate,
            lengths=lengths.tolist(),
            max_tokens=self.max_tokens,
            shorten=QuestionExample.shortened,
        )

    def _short_enough(self, asked: AnswerSet, encoders: Sequence[DatasetEncoder]) -> Bool[np.ndarray, " n"]:
        """The mask of the user's own questions that have no text with too many tokens."""
        of_subject, of_question, _ = COLUMNS[asked.about]
        lengths = {name: each.texts.lengths for name, each in zip((of_question, of_subject), encoders, strict=False)}
        return LengthLimit.of(self, self.max_length, "question").select_short(asked.ids, lengths)

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

    def _answer_names(self, asked: AnswerSet, learns: Bool[np.ndarray, " n"]) -> tuple[str, ...]:
        """The answers of the training split, the most frequent first; of equally frequent ones in their order."""
        if self.trained is not None:
            return tuple(self.trained["answers"])
        if asked.about == "passage":
            return ()
        counts = Counter(answer for answer, does in zip(asked.answers, learns, strict=True) if does)
        ranked = sorted(counts, key=lambda answer: (-counts[answer], answer))[: self.max_answers]
        if len(ranked) < 2:
            raise ConfigError("the training questions have fewer than two answers: there is nothing to choose from")
        return tuple(ranked)

    def _spans(self, asked: AnswerSet) -> Int[np.ndarray, "n 2"] | None:
        """The tokens that lie in the characters of each answer; 0 and 0 where it is not known."""
        if asked.spans is None or asked.passages is None:
            return None
        found = np.zeros((len(asked), 2), dtype=np.int64)
        rows = zip(found, asked.passages, asked.spans, asked.answers, strict=True)
        for row, passage, (start, end), answer in rows:
            if answer:
                row[:] = _tokens_in(self.tokeniser.encode(passage), start, end)
        return found


def _warn_of_unknown(asked: AnswerSet, answers: Int[np.ndarray, " n"]) -> None:
    """Says how many given answers are none that the model can give."""
    strange = [answer for answer, number in zip(asked.answers, answers, strict=True) if answer and number == UNKNOWN]
    if strange:
        counts = count_noun(len(strange), "question counts", "questions count")
        warn(f"{counts} as wrong, because {join_names(sorted(set(strange)))} no answer that the model gives.")


def _tokens_in(tokens: Tokens, start: int, end: int) -> tuple[int, int]:
    """Returns the first and the last token that have a character of a span."""
    inside = [number for number, (a, b) in enumerate(tokens.spans) if a < end and b > start]
    return (inside[0], inside[-1]) if inside else (0, 0)
