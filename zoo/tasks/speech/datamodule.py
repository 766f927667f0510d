"""Recordings and their transcripts as the trainer takes them: batches by a budget of frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float64, Int

from zoo.data.loader import Loader
from zoo.data.ragged import RaggedArray
from zoo.data.splits import NONE, SPLITS, TRAIN
from zoo.errors import DataError, warn
from zoo.tasks.base import TaskData
from zoo.tasks.baselines import Texts
from zoo.tasks.batching import BatchOptions, Examples
from zoo.tasks.command_options import FOLDER, CommandOption
from zoo.tasks.data_summary import Longest, Summary, Vocabulary, count_splits, share_unknown
from zoo.tasks.seq2seq.dataset_encoder import DatasetEncoder, learned_language
from zoo.tasks.seq2seq.text_codec import SPECIALS, UNKNOWN, TextCodec
from zoo.tasks.speech.batch import SpeechBatch, Utterance, WrittenUtterance
from zoo.tasks.speech.data import corpus as corpora
from zoo.tasks.speech.data.augmentation import Augmentation
from zoo.tasks.speech.data.corpus import Corpus
from zoo.tasks.speech.data.features import FEATURES, Features, Normalised, Scale
from zoo.tasks.speech.data.readers import Alphabet, ReaderOptions, read_recordings_at, seconds
from zoo.tasks.speech.small_data import FEW_RECORDINGS, choose_tokeniser
from zoo.text import TOKENISER, VOCABULARY, Tokens, new_tokenizer
from zoo.text.tokenizer_factory import Kind
from zoo.text.vocabulary import Policy
from zoo.types import PositiveInt, validate_ranges

DEFAULT_FEATURES = Features()


@dataclass(frozen=True)
class SpeechSource:
    """Where recordings come from.

    Args:
        read: Reads them, given what features are.
        reading: How files are read that the user gives to a trained model.
    """

    read: Callable[[Features], Corpus]
    reading: ReaderOptions = field(default_factory=ReaderOptions)


@dataclass(frozen=True, eq=False)
class Content:
    """What was read.

    Args:
        corpus: The recordings.
        language: The language that is written.
        targets: The tokens of each transcript, without the end; none if it is not known.
        times: For each of these tokens, its begin and end in seconds, equal if it has no sound; None: not known.
        rows: The features of each recording at each speed, before normalisation.
        normalised: Makes features what the net reads.
    """

    corpus: Corpus
    language: TextCodec
    targets: RaggedArray
    times: Sequence[Float64[np.ndarray, "_ 2"]] | None
    rows: Mapping[float, corpora.Rows]
    normalised: Normalised


@validate_ranges
class SpeechData(TaskData):
    """Batches of recordings and their transcripts.

    Args:
        source: Where the recordings come from.
        batching: How they become batches.
        features: What a net reads of a recording.
        augmentation: Random changes of training recordings. Default: none.
        tokeniser: What transcripts are split into; subwords are learned from the training split. auto: words or
            characters, as `choose_tokeniser` says.
        lower: Whether transcripts are written in small letters.
        closing_space: Whether a transcript that is learned ends with a space. All words then end alike: a listener that
            reads forwards cannot know, in the silence behind a word, whether another one follows.
        subwords: The most subwords.
        min_count: Tokens that are rarer in training are unknown.
        max_vocabulary: The most tokens, the most frequent ones; null: all.
        vocabulary: Tokens of a model that starts from a checkpoint and keeps its tokeniser (`zoo.text.vocabulary`).
        max_frames: The most frames of a batch, each recording counting as much as the longest; null: no limit.
        kept_features: Whether fine-tuning takes the features of its checkpoint, with their mean and deviation.
    """

    input_options: ClassVar[Sequence[CommandOption]] = (
        CommandOption(name="longest-seconds", kind=seconds, metavar="SECONDS", help="longest recording that is read"),
        CommandOption(name="shortest-seconds", kind=seconds, metavar="SECONDS", help="shortest recording likewise"),
        FOLDER,
    )
    longest_seconds: float | None = None
    """Seconds of the longest recording that `from_files` reads; None: as in training."""
    shortest_seconds: float | None = None
    """Seconds of the shortest, likewise."""
    folder: Path | None = None
    """Where the paths of a table begin that `from_files` reads; None: in its folder."""

    source: SpeechSource

    def __init__(
        self,
        source: SpeechSource,
        batching: BatchOptions,
        *,
        features: Features = DEFAULT_FEATURES,
        augmentation: Augmentation | None = None,
        tokeniser: Kind | Literal["auto"] = "characters",
        lower: bool = True,
        closing_space: bool = False,
        subwords: PositiveInt = 1000,
        min_count: PositiveInt = 1,
        max_vocabulary: Annotated[int, "> 4"] | None = None,
        vocabulary: Policy = "unite",
        max_frames: PositiveInt | None = None,
        kept_features: bool = True,
    ) -> None:
        super().__init__(source, batching)
        self.features = features
        self.augmentation = augmentation
        self._make_tokeniser = partial(new_tokenizer, lower=lower, subwords=subwords)
        self._chooses_tokeniser = tokeniser == "auto"
        self.tokeniser = self._make_tokeniser("characters" if tokeniser == "auto" else tokeniser)
        self.closing_space = closing_space
        self.min_count = min_count
        self.max_vocabulary = max_vocabulary
        self.vocabulary = vocabulary
        self.max_frames = max_frames
        self.kept_features = kept_features
        self._kept: Normalised | None = None
        self._origin: TextCodec | None = None
        """Language of the checkpoint that training starts from, whose tokeniser is kept."""
        self.on_bad_row = source.reading.on_bad_row

    def read(self) -> Content:
        corpus = self._respell(self.source.read(self.features))
        train = corpus.numbers("train")
        if self.trained is None and self._origin is None:
            texts = [text for text in map(corpus.texts.__getitem__, train) if text]
            if self._chooses_tokeniser:
                self.tokeniser = self._make_tokeniser(choose_tokeniser(texts))
            self.tokeniser = self.tokeniser.fit(texts)
        rows = {1.0: corpus.sounds.features(self.features)}
        if self.trained is None and self.augmentation is not None:
            rows |= {speed: corpus.sounds.features(self.features, speed) for speed in self.augmentation.speeds}
        normalised = self._make_normalizer(rows[1.0], train)
        encoder, times = DatasetEncoder(self.tokeniser, {}), None if corpus.times is None else list[Any]()
        for number, text in enumerate(corpus.texts):
            tokens = encoder.add(f"{text} " if text and self.closing_space else text or "")
            if times is not None and corpus.times is not None:
                times.append(times_of_tokens(corpus.times[number], tokens))
        language = self._language(encoder, corpus)
        targets = encoder.encode(language)
        if self.trained is None:
            _warn_of_unknown(corpus, targets, language)
        return Content(corpus, language, targets, times, rows, normalised)

    def names(self, content: Content) -> Mapping[str, Sequence[str]]:
        return {"target_tokens": content.language.vocabulary.tokens}

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        return {"features": state["features"]["width"], "tokens": len(state["target_tokens"])}

    def sizes(self) -> dict[str, int]:
        recordings = min(len(self.content.corpus.numbers("train")), FEW_RECORDINGS)
        is_words = self.content.language.tokeniser.state()["kind"] == "words"
        return {**super().sizes(), "recordings": recordings, "word_tokens": int(is_words)}

    form: ClassVar[Mapping[str, Any]] = {"target_tokens": VOCABULARY, "tokeniser": TOKENISER, "features": FEATURES}

    def state(self) -> dict[str, Any]:
        """Vocabulary, tokeniser and features, for a checkpoint."""
        content: Content = self.content
        about = {"tokeniser": content.language.tokeniser.state(), "features": content.normalised.state()}
        return {**super().state(), **about}

    def restore(self, state: dict[str, Any]) -> None:
        """Reads the data with a checkpoint's vocabulary, tokeniser and features instead of its own."""
        language, self._kept = _language(state), Normalised.from_state(state["features"])
        super().restore(state)
        self.tokeniser, self.features = language.tokeniser, self._kept.features

    def inherit_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        if "features" not in state:  # a model of other data, whose weights alone are continued
            return
        self._origin = _language(state)
        self.tokeniser = self._origin.tokeniser
        if self.kept_features:
            self._kept = Normalised.from_state(state["features"])
            self.features = self._kept.features

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> SpeechSource:
        """The user's own recordings: files, folders and tables."""
        reading = self.source.reading
        given = {"shortest": self.shortest_seconds, "longest": self.longest_seconds}
        limits = reading.limits._replace(**{name: value for name, value in given.items() if value is not None})
        reading = replace(reading, on_bad_row=self.on_bad_row, encoding=self.encoding, limits=limits)
        alphabet = replace(_alphabet(state), unknown=self.unknown_labels)
        return SpeechSource(partial(read_recordings_at, paths, reading, alphabet, folder=self.folder), reading)

    def texts(self, split: str) -> Texts:
        """Returns the transcripts of a split as the model spells its own."""
        content: Content = self.content
        known = (content.corpus.texts[number] for number in content.corpus.numbers(split).tolist())
        return Texts([[content.language.respell(text)] for text in known if text is not None])

    def summary(self) -> Summary:
        content: Content = self.content
        corpus, rows = content.corpus, content.rows[1.0]
        splits = np.where(corpus.is_transcribed, corpus.splits, NONE)
        seconds = np.array([len(rows[number]) for number in range(len(corpus))]) * content.normalised.features.hop
        size, unknown = len(content.language) - len(SPECIALS), share_unknown([content.targets], splits, UNKNOWN)
        return Summary(
            noun="recording",
            sizes=count_splits(splits),
            spare=int((splits == NONE).sum()),
            hours={split: float(seconds[splits == n].sum()) / 3600 for n, split in enumerate(SPLITS)},
            longest=Longest.find("second", corpus.ids, seconds),
            vocabularies=[Vocabulary("tokens", size, unknown)],
        )

    def empty_hint(self, split: str) -> str:
        return "Give recordings with transcripts there"

    def prediction_loader(self, split: str) -> Loader:
        return self._make_ordered_loader(self.examples(split, transcribed=False))

    def examples(self, split: str, *, training: bool = False, transcribed: bool = True) -> Examples:
        """The recordings of one split in their order, those with a transcript unless it is `all`.

        Args:
            split: Name of the split.
            training: Whether the recordings are augmented.
            transcribed: Whether recordings of a split without a transcript are left out.
        """
        content: Content = self.content
        numbers = content.corpus.numbers(split)
        if split in SPLITS and transcribed:
            numbers = numbers[content.corpus.is_transcribed[numbers]]
        encoded = _Encoded(content, numbers, written=not training)
        is_augmented = training and self.augmentation is not None and self.augmentation.changes
        return Examples(
            entries=range(len(numbers)) if is_augmented else encoded,
            collate=partial(SpeechBatch.collate, language=content.language, hop=self.features.hop),
            lengths=encoded.lengths(),
            max_tokens=self.max_frames,
            augment=_Augmented(encoded, self.augmentation) if is_augmented and self.augmentation else None,
            shorten=Utterance.shorten,
            unit="frame",
        )

    def _respell(self, corpus: Corpus) -> Corpus:
        """Returns the recordings with transcripts as the tokeniser writes them."""
        if not self.tokeniser.state()["lower"]:
            return corpus
        return replace(corpus, texts=[None if text is None else text.lower() for text in corpus.texts])

    def _make_normalizer(self, rows: corpora.Rows, train: Int[np.ndarray, " k"]) -> Normalised:
        width = rows[0].shape[1]
        if self._kept is not None:
            if width != self._kept.width:
                what = f"the model reads {self._kept.width} features of a frame, and these recordings have {width}"
                raise DataError(f"{what}. Give recordings with the features that it was trained on.")
            return self._kept
        is_global = self.features.normalise == "global"
        return Normalised(self.features, width, Scale.measure(rows[number] for number in train) if is_global else None)

    def _language(self, encoder: DatasetEncoder, corpus: Corpus) -> TextCodec:
        if self.trained is not None:
            return _language(self.trained)
        learns = (corpus.splits == TRAIN) & corpus.is_transcribed
        return learned_language(
            [encoder],
            learns,
            min_count=self.min_count,
            max_size=self.max_vocabulary,
            origin=self._origin,
            policy=self.vocabulary,
        )


class _Encoded(Sequence[Utterance]):
    """Some recordings of a corpus, by number, as a batch takes them."""

    def __init__(self, content: Content, numbers: Int[np.ndarray, " k"], *, written: bool) -> None:
        self.content = content
        self.numbers = numbers
        self.written = written

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: Any) -> Any:
        return self.make_utterance(place, 1.0)

    def make_utterance(self, place: int, speed: float) -> Utterance:
        """Returns a recording at one of the speeds."""
        number, content = int(self.numbers[place]), self.content
        corpus = content.corpus
        x = content.normalised(content.rows[speed][number])
        spans = None
        if content.times is not None:
            spans = content.normalised.features.frames(content.times[number] / speed, len(x))
        split = int(corpus.splits[number])
        return Utterance(
            features=x,
            target=None if corpus.texts[number] is None else content.targets[number],
            id=corpus.ids[number],
            split=SPLITS[split] if split != NONE else "",
            spans=spans,
            written=self._make_readable(number) if self.written else None,
        )

    def lengths(self) -> list[int]:
        """Returns the number of frames of each recording at its own speed."""
        rows = self.content.rows[1.0]
        return [len(rows[number]) for number in self.numbers.tolist()]

    def _make_readable(self, number: int) -> WrittenUtterance:
        corpus = self.content.corpus
        text = corpus.texts[number]
        return WrittenUtterance(
            references=[] if text is None else [text],
            speaker="" if corpus.speakers is None else corpus.speakers[number],
            snr=None if corpus.snrs is None else corpus.snrs[number],
        )


class _Augmented:
    """Makes a changed recording; the loader seeds the generators for each recording and epoch."""

    def __init__(self, encoded: _Encoded, augmentation: Augmentation) -> None:
        self.encoded, self.augmentation = encoded, augmentation

    def __call__(self, place: int) -> Utterance:
        utterance = self.encoded.make_utterance(place, self.augmentation.speed())
        masked = self.augmentation.mask(torch.from_numpy(np.array(utterance.features)))
        return Utterance(masked.numpy(), utterance.target, utterance.id, utterance.split, utterance.spans)


def times_of_tokens(times: Float64[np.ndarray, "c 2"], tokens: Tokens) -> Float64[np.ndarray, "n 2"]:
    """Returns begin and end of each token, in seconds: those of its characters that have a sound.

    Args:
        times: Begin and end of each character of the text, equal for a character without a sound.
        tokens: The tokens of the text; a space may follow it.
    """
    found = np.zeros((len(tokens), 2))
    for place, (start, end) in enumerate(tokens.spans):
        own = times[start:end]
        sounding = own[own[:, 1] > own[:, 0]]
        silent = own[0, 0] if len(own) else times[-1, 1]
        found[place] = (sounding[0, 0], sounding[-1, 1]) if len(sounding) else (silent, silent)
    return found


def _language(state: Mapping[str, Any]) -> TextCodec:
    """The language of a checkpoint."""
    return TextCodec.from_state(state["tokeniser"], state["target_tokens"])


def _alphabet(state: Mapping[str, Any]) -> Alphabet:
    """The characters that a trained model writes."""
    tokeniser = state["tokeniser"]
    letters = frozenset(state["target_tokens"][len(SPECIALS) :]) if tokeniser["kind"] == "characters" else None
    return Alphabet(letters, tokeniser["lower"])


def _warn_of_unknown(corpus: Corpus, targets: RaggedArray, language: TextCodec) -> None:
    """Says of how many transcripts that are held out a part cannot be written, because training lacks it."""
    found, examples = 0, set[str]()
    for number in np.flatnonzero((corpus.splits != TRAIN) & (corpus.splits != NONE) & corpus.is_transcribed).tolist():
        if UNKNOWN in targets[number]:
            found += 1
            names = language.tokeniser.encode(corpus.texts[number] or "").names
            examples.update(name for name in names if name not in language.vocabulary)
    if found:
        shown = ", ".join(map(repr, sorted(examples)[:5]))
        warn(f"{found:,} transcripts of val and test have what train lacks and no model can write, such as {shown}.")
