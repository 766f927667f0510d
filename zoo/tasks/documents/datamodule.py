"""The data module of documents: makes batches of texts, which a number of tokens can limit."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from zoo.data.loader import Loader
from zoo.data.splits import NONE, SPLITS
from zoo.data.tables import parse_number
from zoo.errors import CheckpointError, ConfigError, count_noun
from zoo.tasks.base import TaskData
from zoo.tasks.batching import BatchOptions, Examples
from zoo.tasks.command_options import MOST_CHARACTERS, CommandOption, replace_given
from zoo.tasks.data_summary import Longest, Summary, count_labels, count_splits
from zoo.tasks.data_summary import Vocabulary as Known
from zoo.tasks.documents.batch import Document, DocumentBatch
from zoo.tasks.documents.data.augmentation import Augmentation, AugmentedView
from zoo.tasks.documents.data.corpus import Corpus
from zoo.tasks.documents.data.encoding import DocumentTokenizer, count_tokens, encode_sentences
from zoo.tasks.documents.data.readers import MOST_TOKENS, ReaderOptions, read_texts_at, texts_as_written
from zoo.tasks.documents.label_set import LabelSet
from zoo.tasks.documents.small_data import choose_min_count, choose_word_dropout
from zoo.tasks.length_limit import LONGEST_TEXT, LengthLimit
from zoo.text import TOKENISER, VOCABULARY, Vocabulary, new_tokenizer
from zoo.text.tokenizer_factory import Kind
from zoo.text.vocabulary import Policy
from zoo.types import Fraction, PositiveInt, validate_ranges
from zoo.validation import Predicate

_MOST_TEXTS = 2000
"""Number of texts of a split that are looked at for unknown tokens."""
_LIMIT = Predicate(
    "a whole number from 1, or nothing", lambda value: value is None or (type(value) is int and value > 0)
)
_TARGETS = Predicate("single, multi or ordinal", lambda value: value in ("single", "multi", "ordinal"))
_OWN = Predicate("0 or 1", lambda value: type(value) is int and value in (0, 1))
_UNKNOWN = Vocabulary([], specials=("unknown",)).tokens[0]
_PLANTED = "shortcut-{}"
"""Name of the planted word of each label; no tokeniser produces it from a text."""


@dataclass(frozen=True)
class DocumentSource:
    """The source of texts.

    Args:
        read: Function that reads the texts.
        reading: Options for files that the user gives to a trained model.
        is_own: True if the texts are the user's own, whose lengths are not known beforehand.
        place: File or folder, for messages. Default: there are several, or none.
    """

    read: Callable[[], Corpus]
    reading: ReaderOptions = field(default_factory=ReaderOptions)
    is_own: bool = False
    place: Path | None = None


@dataclass(frozen=True, eq=False)
class Content:
    """The texts of a source, with the vocabulary.

    Args:
        corpus: Texts and labels.
        splitting: Splits texts into sentences and tokens.
        vocabulary: Vocabulary of the tokens.
        lengths: Number of tokens of each text.
    """

    corpus: Corpus
    splitting: DocumentTokenizer
    vocabulary: Vocabulary
    lengths: Int[np.ndarray, " n"]


@validate_ranges
class DocumentData(TaskData):
    """Batches of texts. Texts are split into tokens when a batch is made; only labels and lengths stay in memory.

    Args:
        source: Source of the texts.
        batching: Options of batches.
        tokeniser: Kind of tokens. Subwords are learned from the training split.
        lower: If True, texts are converted to lower case.
        subwords: Maximum number of subwords.
        language: Language code, such as en or de, which decides where sentences end.
        min_count: Minimum number of occurrences of a token in the training split; rarer tokens are unknown. None:
            `choose_min_count`, or 1 where training starts from a checkpoint.
        max_vocabulary: Maximum number of tokens; the most frequent ones are kept. Default: all.
        vocabulary: Tokens of a model that starts from a checkpoint and keeps its tokeniser (`zoo.text.vocabulary`).
        max_length: Maximum number of tokens of a text of the user's own, after it was cut; a longer one is bad.
            None: no limit.
        max_sentences: Number of sentences after which a text is cut. A warning counts the cut texts. Default: no limit.
        max_words: Number of tokens after which a text is cut, likewise. Default: no limit.
        max_tokens: Largest number of tokens in a batch, where each text counts as much as the longest. Default: no
            limit.
        augmentation: Random changes of training texts. Default: none.
        shortcut: Probability that the word planted into a training text stands for the label of the text. Otherwise,
            and in other splits, the word stands for a random label. Default: no words are planted.
    """

    input_options: ClassVar[Sequence[CommandOption]] = (LONGEST_TEXT, MOST_CHARACTERS)
    longest_text: int | None = None
    """Maximum number of tokens of a text that a trained model reads. Default: as in training."""
    most_characters: int | None = None
    """Maximum number of its characters. Default: as in training."""
    written = CommandOption(name="text", metavar="TEXT", is_repeated=True, help="a text to classify; repeatable")

    source: DocumentSource

    def __init__(
        self,
        source: DocumentSource,
        batching: BatchOptions,
        *,
        tokeniser: Kind = "words",
        lower: bool = True,
        subwords: PositiveInt = 8000,
        language: str = "en",
        min_count: PositiveInt | None = 1,
        max_vocabulary: PositiveInt | None = None,
        vocabulary: Policy = "unite",
        max_length: PositiveInt | None = MOST_TOKENS,
        max_sentences: PositiveInt | None = None,
        max_words: PositiveInt | None = None,
        max_tokens: PositiveInt | None = None,
        augmentation: Augmentation | None = None,
        shortcut: Fraction = 0.0,
    ) -> None:
        super().__init__(source, batching)
        made = new_tokenizer(tokeniser, lower=lower, subwords=subwords)
        self.splitting = DocumentTokenizer(made, language, max_sentences, max_words)
        self.min_count = min_count
        self.max_vocabulary = max_vocabulary
        self.vocabulary = vocabulary
        self.max_length = max_length
        self.max_tokens = max_tokens
        self.augmentation = augmentation
        self.shortcut = shortcut
        self.on_bad_row = source.reading.on_bad_row
        self._origin: Sequence[str] | None = None
        """Tokens of the checkpoint that training starts from, whose tokeniser is kept."""
        self._own_texts = int(source.is_own)

    def read(self) -> Content:
        corpus = self.source.read()
        if self.shortcut and corpus.targets == "multi":
            raise ConfigError(
                "data.shortcut plants a word for a text's one label, and these have several; leave it out"
            )
        splitting = self.splitting
        if self.trained is None and self._origin is None:
            learned = splitting.tokeniser.fit(_plain(corpus.texts[number]) for number in corpus.numbers("train"))
            splitting = self.splitting = replace(splitting, tokeniser=learned)
        lengths, cut = np.zeros(len(corpus), dtype=np.int32), 0
        counts = Counter[str]()
        learns = np.zeros(len(corpus), dtype=bool) if self.trained is not None else corpus.splits == 0
        limit = LengthLimit.from_data(self, self.max_length, "text")
        for number, text in enumerate(corpus.texts):
            sentences, was_cut = splitting(text)
            lengths[number] = max(1, sum(len(each.names) for each in sentences))
            cut += was_cut
            if learns[number] and limit.permits(lengths[number]):
                counts.update(count_tokens(sentences))
        if cut:
            most = {"max_sentences": splitting.max_sentences, "max_words": splitting.max_words}
            said = " and ".join(f"data.{name}={value}" for name, value in most.items() if value is not None)
            found = f"{cut:,} of {count_noun(len(corpus), 'text')} {'is' if cut == 1 else 'are'} cut by {said}."
            warnings.warn(found, UserWarning, stacklevel=2)
        kept = np.flatnonzero(limit.select_short(corpus.ids, {"text": lengths}))
        if len(kept) < len(corpus):
            corpus, lengths = corpus.select(kept), lengths[kept]
        if self.trained is not None:
            return Content(corpus, splitting, Vocabulary.from_state(self.trained["tokens"]), lengths)
        if self.shortcut:
            counts.update({_PLANTED.format(label): len(corpus) * 1000 for label in corpus.label_names})
        vocabulary = Vocabulary.from_counts(
            counts,
            specials=("unknown",),
            min_count=self._least_count(corpus),
            max_size=self.max_vocabulary,
            origin=self._origin or (),
            policy=self.vocabulary,
        )
        return Content(corpus, splitting, vocabulary, lengths)

    @property
    def label_set(self) -> LabelSet:
        """Returns the labels, which all batches share."""
        corpus = self.content.corpus
        return LabelSet(corpus.label_names, corpus.targets, corpus.counts(), int((corpus.splits == 0).sum()))

    def names(self, content: Content) -> Mapping[str, Sequence[str]]:
        return {"tokens": content.vocabulary.tokens, "labels": content.corpus.label_names}

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        own = {"own_texts": state["own_texts"]} if "own_texts" in state else {}  # checkpoints of 1.0 have none
        return {"words": len(state["tokens"]), "classes": len(state["labels"]), **own}

    form: ClassVar[Mapping[str, Any]] = {
        "tokens": VOCABULARY,
        "labels": [str],
        "targets": _TARGETS,
        "tokeniser": TOKENISER,
        "language": str,
        "max_sentences": _LIMIT,
        "max_words": _LIMIT,
        "own_texts?": _OWN,
    }

    def state(self) -> dict[str, Any]:
        """Returns vocabulary, labels and tokeniser, for a checkpoint."""
        about = {"targets": self.content.corpus.targets, "own_texts": self._own_texts}
        return {**super().state(), **about, **self.splitting.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Makes the data use the vocabulary, tokeniser and limits of a checkpoint instead of its own."""
        _check_state(state)
        super().restore(state)
        self.splitting = DocumentTokenizer.from_state(state)
        self._own_texts = state.get("own_texts", 0)

    def inherit_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        if "tokeniser" in state:
            kept = DocumentTokenizer.from_state({**self.splitting.state(), "tokeniser": state["tokeniser"]})
            self.splitting, self._origin = kept, state.get("tokens", ())
            self._own_texts = state.get("own_texts", 0)  # a net keeps the shapes of its checkpoint

    @property
    def chooses_for_own(self) -> int:
        """1 if options are chosen for texts of the user's own: not where training starts from a checkpoint.

        A run that is resumed chooses as it did at its beginning.
        """
        return 0 if self.is_fine_tuned or self.trained is not None else self._own_texts

    @property
    def choices(self) -> list[str]:
        """Returns the options that were chosen, as overrides."""
        found = []
        if self.min_count is None and (count := self._least_count()) > 1:
            found.append(f"data.min_count={count}")
        if self.augmentation is not None and self.augmentation.word_dropout is None and (rate := self._word_dropout()):
            found.append(f"data.augmentation.word_dropout={rate}")
        return found

    def _least_count(self, corpus: Corpus | None = None) -> int:
        corpus = self.content.corpus if corpus is None else corpus
        return self.min_count or choose_min_count(self.chooses_for_own, len(corpus.numbers("train")))

    def _word_dropout(self) -> float:
        return choose_word_dropout(self.chooses_for_own, self.splitting.tokeniser.state()["kind"])

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> DocumentSource:
        """Returns the source of the user's own texts: tables, text files and folders of text files."""
        reading = replace(self._input_reading, targets=state["targets"])
        place = paths[0] if len(paths) == 1 else None
        read = partial(read_texts_at, paths, reading, state["labels"], self.unknown_labels)
        return DocumentSource(read, reading, is_own=True, place=place)

    def text_source(self, texts: Sequence[str], state: dict[str, Any]) -> DocumentSource:
        reading = self._input_reading
        how = state["targets"], state["labels"], reading.most_characters
        return DocumentSource(partial(texts_as_written, texts, self.first_text, *how), reading, is_own=True)

    def summary(self) -> Summary:
        content: Content = self.content
        corpus = content.corpus
        splits = np.where(corpus.is_labelled, corpus.splits, NONE)
        return Summary(
            noun="text",
            sizes=count_splits(splits),
            spare=int((splits == NONE).sum()),
            labels=count_labels(corpus.label_names, corpus.labels, splits),
            longest=Longest.find(self._unit, corpus.ids, content.lengths),
            vocabularies=[self._make_vocabulary(content, splits)],
        )

    @property
    def _unit(self) -> str:
        """The noun of a token."""
        kind: str = self.splitting.tokeniser.state()["kind"]
        return kind.removesuffix("s")

    def _make_vocabulary(self, content: Content, splits: Int[np.ndarray, " n"]) -> Known:
        """Returns the vocabulary and what it lacks of held-out texts, of which some are split into tokens again."""
        unknown, most = {}, None
        for name in SPLITS[1:]:
            numbers = np.flatnonzero(splits == SPLITS.index(name))
            if len(numbers) > _MOST_TEXTS:
                numbers, most = numbers[:: len(numbers) // _MOST_TEXTS][:_MOST_TEXTS], _MOST_TEXTS
            tokens = [each for number in numbers.tolist() for each in self.tokens_of(number)]
            if tokens:
                unknown[name] = sum(each not in content.vocabulary for each in tokens) / len(tokens)
        return Known(f"{self._unit}s", len(content.vocabulary) - 1, unknown, most)

    def tokens_of(self, number: int) -> Iterator[str]:
        """Splits the text of this number again."""
        content: Content = self.content
        sentences, _ = content.splitting(content.corpus.texts[number])
        return (name for each in sentences for name in each.names)

    @property
    def _input_reading(self) -> ReaderOptions:
        """How the user's own texts are read by a trained model."""
        given = {"on_bad_row": self.on_bad_row, "encoding": self.encoding, "most_characters": self.most_characters}
        return replace_given(self.source.reading, **given)

    def empty_hint(self, split: str) -> str:
        return "Give texts with a label there"

    def loader(self, split: str, *, spelled: bool | None = None) -> Loader:
        """Returns the batches of a split; for `spelled` see `examples`."""
        return self._make_ordered_loader(self.examples(split, spelled=spelled))

    def prediction_loader(self, split: str) -> Loader:
        return self._make_ordered_loader(self.examples(split, spelled=True, labelled=False))

    def examples(
        self, split: str, *, training: bool = False, spelled: bool | None = None, labelled: bool = True
    ) -> Examples:
        """Returns the labelled texts of a split in order, or all texts for `all`; in training, with augmentation.

        Args:
            split: Name of the split.
            training: Whether the texts are augmented.
            spelled: Whether batches have the words as they are written, which maps and answers read. Default: those of
                `all` have them.
            labelled: Whether texts of a split without a label are left out.
        """
        content: Content = self.content
        numbers = content.corpus.numbers(split)
        if split in SPLITS and labelled:
            numbers = numbers[content.corpus.is_labelled[numbers]]
        spelled = split == "all" if spelled is None else spelled
        augmented, how = None, self.augmentation
        if training and how is not None and how.word_dropout is None:
            how = replace(how, word_dropout=self._word_dropout())
        if training and how is not None and how.changes:
            augmented = AugmentedView(how, content.vocabulary, self.splitting.tokeniser)
        return Examples(
            entries=_Encoded(content, numbers, 0.0 if self.is_input else self.shortcut, spelled=spelled),
            collate=partial(DocumentBatch.collate, label_set=self.label_set),
            lengths=content.lengths[numbers].tolist(),
            augment=augmented,
            max_tokens=self.max_tokens,
            shorten=Document.shorten,
        )


class _Encoded(Sequence[Document]):
    """Documents made on access from the texts of a corpus with the given indices."""

    def __init__(self, content: Content, numbers: Int[np.ndarray, " k"], shortcut: float, *, spelled: bool) -> None:
        self.content = content
        self.numbers = numbers
        self.shortcut = shortcut
        self.spelled = spelled

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        number, corpus, vocabulary = int(self.numbers[place]), self.content.corpus, self.content.vocabulary
        gold = None if corpus.gold_words is None else corpus.gold_words[number]
        sentences, _ = self.content.splitting(corpus.texts[number], gold)
        marks = corpus.gold_sentences
        split = int(corpus.splits[number])
        label: Any = corpus.labels[number]
        document = Document(
            sentences=encode_sentences(vocabulary, sentences),
            label=label.tolist(),
            id=corpus.ids[number],
            gold_words=None if gold is None else [each for sentence in sentences for each in sentence.gold or ()],
            gold_sentences=None if marks is None else marks[number][: len(sentences)].tolist(),
            split=SPLITS[split] if split >= 0 else "",
            spelled=([each.spelled_tokens() for each in sentences] or [[""]]) if self.spelled else None,
        )
        return document if not self.shortcut else self._add_shortcut(document, number)

    def _add_shortcut(self, document: Document, number: int) -> Document:
        """Returns the document with a word for its own or a random label, inserted at a random position."""
        draw, names = random.Random(number), self.content.corpus.label_names
        agrees = document.split == "train" and draw.random() < self.shortcut
        name = names[document.label] if agrees else draw.choice(names)  # type: ignore[index]
        sentence = draw.randrange(len(document.sentences))
        at = draw.randrange(len(document.sentences[sentence]) + 1)
        place = sum(map(len, document.sentences[:sentence])) + at
        (word,) = self.content.vocabulary.encode([_PLANTED.format(name)])
        gold = document.gold_words
        return replace(
            document,
            sentences=_insert(document.sentences, sentence, at, word),
            gold_words=None if gold is None else [*gold[:place], False, *gold[place:]],
            spelled=None if document.spelled is None else _insert(document.spelled, sentence, at, f" <{name}>"),
            planted=place,
        )


def _insert(parts: Sequence[Sequence[Any]], part: int, at: int, what: Any) -> list[Sequence[Any]]:
    found = list(parts)
    found[part] = [*found[part][:at], what, *found[part][at:]]
    return found


def _check_state(state: Mapping[str, Any]) -> None:
    """Refuses a state of the right form whose tokens or labels training cannot have produced."""
    if state["tokens"][:1] != [_UNKNOWN]:
        raise CheckpointError(f"the checkpoint is damaged: the first of its tokens is not {_UNKNOWN}")
    if len(set(state["labels"])) < len(state["labels"]):
        raise CheckpointError("the checkpoint is damaged: it has a label twice")
    for label in state["labels"] if state["targets"] == "ordinal" else ():
        try:
            parse_number(label)
        except ValueError as error:
            raise CheckpointError(f"the checkpoint is damaged: its labels must be numbers, but {error}") from error


def _plain(text: str | Sequence[str]) -> str:
    return text if isinstance(text, str) else " ".join(text)
