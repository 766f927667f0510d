"""Pairs of texts as the trainer takes them: batches by a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Int

from zoo.data.line_index import TextLines
from zoo.data.ragged import RaggedArray, RaggedBuilder
from zoo.data.splits import NONE, SPLITS, TRAIN
from zoo.errors import CheckpointError, ConfigError, count_noun, warn
from zoo.tasks.base import TaskData
from zoo.tasks.baselines import Texts
from zoo.tasks.batching import BatchOptions, Examples
from zoo.tasks.command_options import MOST_CHARACTERS, CommandOption, replace_given
from zoo.tasks.data_summary import Longest, Summary, Vocabulary, count_splits, share_unknown
from zoo.tasks.length_limit import LONGEST_TEXT, LengthLimit
from zoo.tasks.seq2seq.dataset_encoder import DatasetEncoder, first, learned_language
from zoo.tasks.seq2seq.text_codec import SPECIALS, UNKNOWN, TextCodec
from zoo.tasks.translation.batch import Languages, Pair, TranslationBatch, WrittenPair
from zoo.tasks.translation.data.corpus import Corpus
from zoo.tasks.translation.data.readers import (
    MOST_TOKENS,
    ReaderOptions,
    add_back_translated,
    read_pairs_at,
    texts_as_written,
)
from zoo.tasks.translation.data.token_links import link_tokens
from zoo.text import TOKENISER, VOCABULARY, Tokenizer, new_tokenizer
from zoo.text.tokenizer_factory import Kind
from zoo.text.vocabulary import Policy
from zoo.types import PositiveInt, validate_ranges


@dataclass(frozen=True)
class PairSource:
    """Where pairs come from.

    Args:
        read: Reads them.
        reading: How files are read that the user gives to a trained model.
        is_own: Whether they are the user's own, whose lengths are not known beforehand.
        place: The file, for messages; None: there are several, or none.
    """

    read: Callable[[], Corpus]
    reading: ReaderOptions = field(default_factory=ReaderOptions)
    is_own: bool = False
    place: Path | None = None


@dataclass(frozen=True, eq=False)
class Content:
    """What was read.

    Args:
        corpus: The texts; training pairs that are left out are in no split.
        languages: The language that is read and the one that is written.
        sources: The tokens of each source.
        targets: The tokens of each target, without the end; None: not known.
        links: Links of tokens; None: not known.
    """

    corpus: Corpus
    languages: Languages
    sources: RaggedArray
    targets: RaggedArray | None
    links: RaggedArray | None

    def select(self, numbers: Int[np.ndarray, " k"]) -> Content:
        """The pairs with these numbers, in ascending order."""
        rows = (None if each is None else each.select(numbers) for each in (self.targets, self.links))
        return Content(self.corpus.select(numbers), self.languages, self.sources.select(numbers), *rows)

    @property
    def lengths(self) -> Int[np.ndarray, " n"]:
        """The tokens of the longer side of each pair, with the end of a target."""
        lengths = self.sources.lengths
        return lengths if self.targets is None else np.maximum(lengths, self.targets.lengths + 1)


@validate_ranges
class PairData(TaskData):
    """Batches of texts and their translations. The numbers of all tokens are in memory, and texts where they were read.

    Args:
        source: Where the pairs come from.
        batching: How they become batches.
        tokeniser: What texts are split into; subwords are learned from the training split.
        lower: Whether texts are read and written in small letters.
        subwords: The most subwords of a language.
        joint: Whether both languages have one tokeniser and one vocabulary.
        min_count: Words and characters that are rarer in training are unknown.
        max_vocabulary: The most tokens of a language, the most frequent ones; null: all.
        vocabulary: Tokens of a model that starts from a checkpoint and keeps its tokeniser (`zoo.text.vocabulary`).
        max_length: The most tokens of a text. A pair of the user's own with more in a text is a bad one; of other data,
            such training pairs are left out, and counted, and tests are whole. null: no limit.
        max_ratio: Training pairs one of whose texts has more than so many times the tokens of the other are left out,
            and counted; null: none is.
        max_source: Longer sources are cut after so many tokens, everywhere, and counted; null: none is.
        max_tokens: The most tokens of a batch, each pair counting as much as the longest text; null: no limit.
        kept_tokenisers: The sides whose tokenisers fine-tuning takes from its checkpoint; others are learned anew.
        back_translated: A table that `zoo predict` wrote with a model of the other direction. Its translations are read
            in training, and its texts written.
    """

    input_options: ClassVar[Sequence[CommandOption]] = (
        CommandOption(name="references", kind=Path, metavar="FILE", help="translations of a text file, line by line"),
        LONGEST_TEXT,
        MOST_CHARACTERS,
    )
    references: Path | None = None
    """The file of the translations of the text file that `from_files` reads."""
    most_characters: int | None = None
    """The most characters of a text that a trained model reads; None: as in training."""
    longest_text: int | None = None
    """The most tokens of a text that a trained model reads; None: as in training."""
    written = CommandOption(name="text", metavar="TEXT", is_repeated=True, help="a text to translate; repeatable")

    source: PairSource

    def __init__(
        self,
        source: PairSource,
        batching: BatchOptions,
        *,
        tokeniser: Kind = "words",
        lower: bool = False,
        subwords: PositiveInt = 8000,
        joint: bool = False,
        min_count: PositiveInt = 1,
        max_vocabulary: Annotated[int, "> 4"] | None = None,
        vocabulary: Policy = "unite",
        max_length: PositiveInt | None = MOST_TOKENS,
        max_ratio: Annotated[float, ">= 1"] | None = None,
        max_source: PositiveInt | None = None,
        max_tokens: PositiveInt | None = None,
        back_translated: str | None = None,
        kept_tokenisers: Literal["both", "source", "target", "none"] = "both",
    ) -> None:
        if source.is_own:
            source = replace(source, reading=replace(source.reading, max_length=max_length))
        super().__init__(source, batching)
        made = new_tokenizer(tokeniser, lower=lower, subwords=subwords)
        self.tokenisers = made, made
        self.joint = joint
        self.min_count = min_count
        self.max_vocabulary = max_vocabulary
        self.vocabulary = vocabulary
        self.max_length = max_length
        self.max_ratio = max_ratio
        self.max_source = max_source
        self.max_tokens = max_tokens
        self.back_translated = back_translated
        self.on_bad_row = source.reading.on_bad_row
        self.kept_tokenisers = kept_tokenisers
        self._left_out: list[str] = []
        """The options that leave training pairs out."""
        self._origin: dict[str, TextCodec] = {}
        """Side -> language of the checkpoint that training starts from, whose tokeniser is kept."""

    def read(self) -> Content:
        corpus = self.source.read()
        if self.trained is None and self.back_translated is not None:
            corpus = add_back_translated(corpus, Path(self.back_translated), self.source.reading)
        if self.trained is None:
            self.tokenisers = self._learn_tokenizers(corpus)
        numbers: dict[str, int] = {}
        source = DatasetEncoder(self.tokenisers[0], numbers, self.max_source)
        target = DatasetEncoder(self.tokenisers[1], numbers if self.joint else {})
        links = None if corpus.links is None else RaggedBuilder(width=2)
        for number in range(len(corpus)):
            text = corpus.sources[number]
            tokens = source.add(text)
            if corpus.targets is not None:
                translation = corpus.targets[number]
                translated = target.add(translation)
                if links is not None and corpus.links is not None:
                    links.append(link_tokens(corpus.links[number], translation, translated, text, tokens))
        if source.cut:
            of = f"{source.cut:,} of {count_noun(len(corpus), 'source')} {'is' if source.cut == 1 else 'are'}"
            warn(f"{of} cut by data.max_source={self.max_source}.")
        encoders = [source] if corpus.targets is None else [source, target]
        kept = self._short_enough(corpus, encoders)
        if not self.is_input:
            corpus = self._filter(corpus, *encoders)
        languages = self._languages(encoders, (corpus.splits == TRAIN) & kept)
        sources = source.encode(languages.source)
        targets = None if corpus.targets is None else target.encode(languages.target)
        content = Content(corpus, languages, sources, targets, None if links is None else links.build())
        return content if kept.all() else content.select(np.flatnonzero(kept))

    def names(self, content: Content) -> Mapping[str, Sequence[str]]:
        languages = content.languages
        return {
            "source_tokens": languages.source.vocabulary.tokens,
            "target_tokens": languages.target.vocabulary.tokens,
        }

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        return {"source_words": len(state["source_tokens"]), "target_words": len(state["target_tokens"])}

    form: ClassVar[Mapping[str, Any]] = {
        "source_tokens": VOCABULARY,
        "target_tokens": VOCABULARY,
        "source_tokeniser": TOKENISER,
        "target_tokeniser": TOKENISER,
        "joint": bool,
    }

    def state(self) -> dict[str, Any]:
        """Vocabularies and tokenisers, for a checkpoint."""
        languages: Languages = self.content.languages
        return {
            **super().state(),
            "source_tokeniser": languages.source.tokeniser.state(),
            "target_tokeniser": languages.target.tokeniser.state(),
            "joint": self.joint,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Reads the data with a checkpoint's vocabularies and tokenisers instead of its own."""
        languages = _languages(state)
        super().restore(state)
        self.joint = state["joint"]
        self.tokenisers = languages.source.tokeniser, languages.target.tokeniser

    def inherit_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        if "source_tokeniser" not in state:  # a model of other data, whose weights alone are continued
            return
        languages = _languages(state)
        if self.joint and not (self.kept_tokenisers == "none" or (self.kept_tokenisers == "both" and state["joint"])):
            raise ConfigError(
                "data.joint=true needs one tokeniser for both languages, and would have two; leave it out, or give "
                "data.kept_tokenisers=none"
            )
        sides = ("source", languages.source), ("target", languages.target)
        self._origin = {side: language for side, language in sides if self.kept_tokenisers in (side, "both")}

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> PairSource:
        """The user's own texts: tables, and text files with a text on each line."""
        given = {"on_bad_row": self.on_bad_row, "encoding": self.encoding, "most_characters": self.most_characters}
        reading = replace_given(self.source.reading, **given)
        place = paths[0] if len(paths) == 1 else None
        return PairSource(partial(read_pairs_at, paths, reading, self.references), reading, is_own=True, place=place)

    def text_source(self, texts: Sequence[str], state: dict[str, Any]) -> PairSource:
        if self.references is not None:
            raise ConfigError("--references belong to a text file; give the texts in one")
        reading = self.source.reading
        read = partial(texts_as_written, texts, self.first_text, reading.most_characters)
        return PairSource(read, reading, is_own=True)

    def texts(self, split: str) -> Texts:
        """Returns the texts of a split as the model spells its own."""
        content: Content = self.content
        corpus, respell = content.corpus, content.languages.target.respell
        numbers = corpus.numbers(split).tolist()
        references = [] if corpus.targets is None else [[respell(corpus.targets[number])] for number in numbers]
        return Texts(references, [respell(corpus.sources[number]) for number in numbers])

    def summary(self) -> Summary:
        content: Content = self.content
        splits, is_in = content.corpus.splits, content.corpus.splits != NONE
        sides = [("source tokens", content.languages.source, content.sources)]
        if content.targets is not None:
            sides.append(("target tokens", content.languages.target, content.targets))
        return Summary(
            noun="pair",
            sizes=count_splits(splits),
            spare=int((~is_in).sum()),
            longest=Longest.find(
                "token",
                [content.corpus.ids[number] for number in np.flatnonzero(is_in).tolist()],
                content.lengths[is_in],
            ),
            vocabularies=[
                Vocabulary(name, len(side) - len(SPECIALS), share_unknown([rows], splits, UNKNOWN))
                for name, side, rows in sides
            ],
        )

    def text_lines(self) -> TextLines | None:
        content: Content = self.content
        return content.corpus.lines

    def empty_hint(self, split: str) -> str:
        if split == "train" and self._left_out:
            return f"All training pairs are left out by {' and '.join(self._left_out)}: raise it, or write null"
        return "Give pairs of texts there"

    def examples(self, split: str, *, training: bool = False) -> Examples:
        """The pairs of one split in their order."""
        content: Content = self.content
        numbers = content.corpus.numbers(split)
        return Examples(
            entries=_Encoded(content, numbers, self.max_source, written=not training),
            collate=partial(TranslationBatch.collate, language=content.languages.target),
            lengths=content.lengths[numbers].tolist(),
            max_tokens=self.max_tokens,
            shorten=Pair.shorten,
        )

    def _learn_tokenizers(self, corpus: Corpus) -> tuple[Tokenizer, Tokenizer]:
        """The tokenisers, learned from the training texts unless they are kept."""
        assert corpus.targets is not None
        train, texts = corpus.numbers("train"), {"source": corpus.sources, "target": corpus.targets}

        def learn(tokeniser: Tokenizer, *sides: str) -> Tokenizer:
            if sides[0] in self._origin:
                return self._origin[sides[0]].tokeniser
            return tokeniser.fit(texts[side][number] for side in sides for number in train)

        source, target = self.tokenisers
        if self.joint:
            both = learn(source, "source", "target")
            return both, both
        return learn(source, "source"), learn(target, "target")

    def _languages(self, encoders: Sequence[DatasetEncoder], learns: Bool[np.ndarray, " n"]) -> Languages:
        if self.trained is not None:
            return _languages(self.trained)
        sides = {"source": encoders} if self.joint else {"source": encoders[:1], "target": encoders[1:]}
        made = [
            learned_language(
                each,
                learns,
                min_count=self.min_count,
                max_size=self.max_vocabulary,
                origin=self._origin.get(side),
                policy=self.vocabulary,
            )
            for side, each in sides.items()
        ]
        return Languages(made[0], made[-1])

    def _short_enough(self, corpus: Corpus, encoders: Sequence[DatasetEncoder]) -> Bool[np.ndarray, " n"]:
        """The mask of the user's own pairs that have no text with too many tokens."""
        lengths = {name: each.texts.lengths for name, each in zip(("source", "target"), encoders, strict=False)}
        limit = LengthLimit.from_data(self, self.source.reading.max_length, "pair" if len(encoders) > 1 else "text")
        return limit.select_short(corpus.ids, lengths)

    def _filter(self, corpus: Corpus, source: DatasetEncoder, target: DatasetEncoder) -> Corpus:
        """Without the training pairs that are too long or too uneven, which are counted."""
        lengths = np.stack([source.texts.lengths, target.texts.lengths])
        longer, shorter = lengths.max(0), np.maximum(lengths.min(0), 1)
        for name, most, is_over in (
            ("max_length", self.max_length, longer > (np.inf if self.source.is_own else self.max_length or np.inf)),
            ("max_ratio", self.max_ratio, longer > shorter * (self.max_ratio or np.inf)),
        ):
            is_over &= corpus.splits == TRAIN
            if is_over.any():
                count, total = int(is_over.sum()), int((corpus.splits == TRAIN).sum())
                self._left_out.append(f"data.{name}={most}")
                said = f"{count:,} of {total:,} training pairs are left out by data.{name}={most}."
                warn(said)
                corpus = replace(corpus, splits=np.where(is_over, NONE, corpus.splits))
        return corpus


class _Encoded(Sequence[Pair]):
    """Some pairs of a corpus, by number, as a batch takes them."""

    def __init__(self, content: Content, numbers: Int[np.ndarray, " k"], most: int | None, *, written: bool) -> None:
        self.content = content
        self.numbers = numbers
        self.most = most
        self.written = written

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        number, content = int(self.numbers[place]), self.content
        split = int(content.corpus.splits[number])
        return Pair(
            source=content.sources[number],
            target=None if content.targets is None else content.targets[number],
            id=content.corpus.ids[number],
            split=SPLITS[split] if split != NONE else "",
            links=None if content.links is None else content.links[number].tolist(),
            written=self._make_readable(number) if self.written else None,
        )

    def _make_readable(self, number: int) -> WrittenPair:
        corpus = self.content.corpus
        text = corpus.sources[number]
        tokens = first(self.content.languages.source.tokeniser.encode(text), self.most)
        return WrittenPair(
            source=text,
            references=[] if corpus.targets is None else [corpus.targets[number]],
            pieces=[text[start:end] for start, end in tokens.spans] or [text],
            words=tokens.words or [0],
        )


def _languages(state: Mapping[str, Any]) -> Languages:
    """The languages of a checkpoint."""
    sides = [(state[f"{side}_tokeniser"], state[f"{side}_tokens"]) for side in ("source", "target")]
    source = TextCodec.from_state(*sides[0])
    if not state["joint"]:
        return Languages(source, TextCodec.from_state(*sides[1]))
    if sides[0] != sides[1]:
        raise CheckpointError("the checkpoint is damaged: its languages have one vocabulary, and it has two")
    return Languages(source, source)
