"""Pictures and captions as the trainer takes them: pixels are read on access and brought to one size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Int

from zoo.data.loader import Loader
from zoo.data.splits import NONE, TRAIN
from zoo.errors import warn
from zoo.nn.images.classifier import ImageClassifierNet
from zoo.tasks.base import TaskData
from zoo.tasks.baselines import Texts
from zoo.tasks.batching import BatchOptions, Examples
from zoo.tasks.captioning.batch import CaptionBatch
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.captioning.data.examples import Content, Entries, augment
from zoo.tasks.captioning.data.features import Features, Seen, cache_features
from zoo.tasks.captioning.data.normalize import normalize_captions
from zoo.tasks.captioning.data.readers import ReaderOptions, read_pictures
from zoo.tasks.command_options import FOLDER, MOST_PIXELS, CommandOption, replace_given
from zoo.tasks.data_summary import Longest, Summary, Vocabulary, count_splits, share_unknown
from zoo.tasks.seq2seq.dataset_encoder import DatasetEncoder, learned_language
from zoo.tasks.seq2seq.text_codec import SPECIALS, UNKNOWN, TextCodec
from zoo.tasks.vision.data.image_options import (
    MOST_INPUT,
    MOST_INPUT_PIXELS,
    PREPROCESSING,
    ImageOptions,
    check_input_pixels,
    preprocessing_state,
)
from zoo.tasks.vision.data.transforms import Augmentation, Resize
from zoo.text import TOKENISER, VOCABULARY, Frequencies, Tokenizer, new_tokenizer
from zoo.text.tokenizer_factory import Kind
from zoo.text.vocabulary import Policy
from zoo.types import Fraction, PositiveFloat, PositiveFraction, PositiveInt, validate_ranges

_AT_ONCE = 32
"""Pictures that an encoder reads together."""


@dataclass(frozen=True)
class CaptionSource:
    """Where pictures and captions come from.

    Args:
        read: `(reading) -> CaptionSet` for pictures in files, `() -> CaptionSet` if `reading` is None.
        reading: How pictures in files are read. Default: for generated sets.
    """

    read: Callable[..., CaptionSet]
    reading: ReaderOptions | None = None


@validate_ranges
class CaptionData(TaskData):
    """Batches of pictures and captions. A picture with several captions is as many examples in training, otherwise one.

    Args:
        source: Where the pictures come from.
        batching: How they become batches.
        tokeniser: What captions are split into; subwords are learned from the training split.
        lower: Whether captions are written in small letters.
        subwords: The most subwords.
        min_count: Words and characters that are rarer in training are unknown.
        max_vocabulary: The most tokens, the most frequent ones; null: all.
        vocabulary: Tokens of a model that starts from a checkpoint and keeps its tokeniser (`zoo.text.vocabulary`).
        max_length: Training captions with more tokens are left out, and counted; null: none is.
        mean: Mean of each channel over the training split, for pixels between 0 and 1. Default: ImageNet's.
        std: Standard deviation of each channel, likewise. Default: ImageNet's.
        height: Height of the net's input. Default: that of the pictures, if all have the same size.
        width: Width of the net's input, likewise.
        resize: How pictures of other sizes are resized (`zoo.tasks.vision.data.transforms.Preprocessing`).
        share: Share of the shorter side that is kept if resize=crop.
        punctuation: Whether captions have punctuation; if not, it is taken from the given ones everywhere.
        augmentation: Random changes of training pictures. Default: none.
        bucketed: Whether training batches hold captions of similar length, which leaves little padding to compute.
        keep_features: Whether the features of pictures are computed once if their encoder is frozen.
        references: Whether training examples carry all captions of their pictures, as self-critical training needs.
        cache: The folder of derived files, where features are kept; null: they are in memory.
    """

    most_input_pixels: int = MOST_INPUT_PIXELS
    """Largest size to which the net of a checkpoint may have pictures resized."""

    source: CaptionSource

    input_options: ClassVar[Sequence[CommandOption]] = (FOLDER, MOST_PIXELS, MOST_INPUT)
    folder: Path | None = None
    """Where the paths of pictures begin in a table for a trained model; None: in its folder."""
    most_pixels: int | None = None
    """The most pixels of a picture there; None: as in training."""

    def __init__(
        self,
        source: CaptionSource,
        batching: BatchOptions,
        *,
        tokeniser: Kind = "words",
        lower: bool = True,
        subwords: PositiveInt = 8000,
        min_count: PositiveInt = 1,
        max_vocabulary: Annotated[int, "> 4"] | None = None,
        vocabulary: Policy = "unite",
        max_length: PositiveInt | None = None,
        mean: Sequence[Fraction] | None = None,
        std: Sequence[PositiveFloat] | None = None,
        height: PositiveInt | None = None,
        width: PositiveInt | None = None,
        resize: Resize = "crop",
        share: PositiveFraction = 1.0,
        punctuation: bool = True,
        augmentation: Augmentation | None = None,
        bucketed: bool = False,
        keep_features: bool = True,
        references: bool = False,
        cache: str | None = None,
    ) -> None:
        super().__init__(source, batching)
        self.tokeniser: Tokenizer = new_tokenizer(tokeniser, lower=lower, subwords=subwords)
        self.min_count = min_count
        self.max_vocabulary = max_vocabulary
        self.vocabulary = vocabulary
        self.max_length = max_length
        self.options = ImageOptions(mean, std, height, width, resize, share)
        self.lower = lower
        self.punctuation = punctuation
        self.augmentation = augmentation
        self.bucketed = bucketed
        self.keeps_features = keep_features
        self.references = references
        self.cache = cache
        self.features: Features | None = None
        """The features of all pictures, if they are computed already."""
        self._origin: TextCodec | None = None
        """Language of the checkpoint that training starts from, whose tokeniser is kept."""
        if source.reading is not None:
            self.on_bad_row = source.reading.on_bad_row

    def read(self) -> Content:
        pictures = normalize_captions(self._pictures(), lower=self.lower, punctuation=self.punctuation)
        self.preprocessing = self.options.make_preprocessing(3, pictures.size)
        captions = pictures.captions
        if captions is None:
            return Content(pictures, self._trained_language(), None, np.zeros(len(pictures) + 1, dtype=np.int64))
        ends = np.concatenate([[0], np.cumsum([len(each) for each in captions])])
        texts = [text for each in captions for text in each]
        learns = np.repeat(pictures.splits, np.diff(ends)) == TRAIN
        if self.trained is None:
            learned = (text for text, does in zip(texts, learns, strict=True) if does)
            self.tokeniser = self.tokeniser.fit(learned) if self._origin is None else self._origin.tokeniser
        encoder = DatasetEncoder(self.tokeniser, {})
        for text in texts:
            encoder.add(text)
        if self.trained is None:
            language = learned_language(
                [encoder],
                learns,
                min_count=self.min_count,
                max_size=self.max_vocabulary,
                origin=self._origin,
                policy=self.vocabulary,
            )
        else:
            language = self._trained_language()
        tokens = encoder.encode(language)
        if self.trained is None and self.max_length is not None:
            left_out = int((tokens.lengths[learns] > self.max_length).sum())
            if left_out:
                every = int(learns.sum())
                warn(f"{left_out:,} of {every:,} captions are left out by data.max_length={self.max_length}.")
        return Content(pictures, language, tokens, ends)

    @property
    def language(self) -> TextCodec:
        """The language of the captions."""
        content: Content = self.content
        return content.language

    def names(self, content: Content) -> Mapping[str, Sequence[str]]:
        return {"target_tokens": content.language.vocabulary.tokens}

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        return {"tokens": len(state["target_tokens"]), "height": state["height"], "width": state["width"]}

    form: ClassVar[Mapping[str, Any]] = {
        "target_tokens": VOCABULARY,
        "target_tokeniser": TOKENISER,
        **PREPROCESSING,
    }

    def state(self) -> dict[str, Any]:
        """Vocabulary, tokeniser and preprocessing, for a checkpoint."""
        tokeniser = self.language.tokeniser.state()
        return {**super().state(), "target_tokeniser": tokeniser, **preprocessing_state(self.preprocessing)}

    def check_input_sizes(self, state: Mapping[str, Any]) -> None:
        check_input_pixels(state, self.most_input_pixels)

    def restore(self, state: dict[str, Any]) -> None:
        """Reads the data with a checkpoint's language and preprocessing instead of its own."""
        super().restore(state)
        self.tokeniser = self._trained_language().tokeniser
        self.options = ImageOptions.from_state(state)

    def inherit_from_checkpoint(self, state: Mapping[str, Any]) -> None:
        if "target_tokeniser" in state:  # otherwise a model of other data, whose weights alone are continued
            self._origin = TextCodec.from_state(state["target_tokeniser"], state["target_tokens"])

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> CaptionSource:
        """The user's own pictures: files and folders."""
        given = {"on_bad_row": self.on_bad_row, "encoding": self.encoding, "most_pixels": self.most_pixels}
        reading = replace_given(self.source.reading or ReaderOptions(), **given)
        return CaptionSource(partial(read_pictures, paths, folder=self.folder), reading)

    def texts(self, split: str) -> Texts:
        """Returns the captions of a split as the model spells its own."""
        content: Content = self.content
        captions = content.pictures.captions or ()
        numbers = content.pictures.numbers(split).tolist() if captions else []
        return Texts([[content.language.respell(text) for text in captions[number]] for number in numbers])

    def summary(self) -> Summary:
        content: Content = self.content
        pictures, captions = content.pictures, content.tokens
        found = Summary(noun="picture", sizes=count_splits(pictures.splits), spare=int((pictures.splits == NONE).sum()))
        if captions is None:
            return found
        owners = np.repeat(np.arange(len(pictures)), np.diff(content.ends))
        unknown = share_unknown([captions], pictures.splits[owners], UNKNOWN)
        return replace(
            found,
            totals={"caption": len(captions)},
            longest=Longest.find("token", [pictures.ids[number] for number in owners.tolist()], captions.lengths),
            vocabularies=[Vocabulary("tokens", len(content.language) - len(SPECIALS), unknown)],
        )

    def empty_hint(self, split: str) -> str:
        if split == "train" and self.max_length is not None and len(self.content.pictures.numbers("train")):
            return f"All training captions are left out by data.max_length={self.max_length}: raise it, or write null"
        return "Give pictures with captions there"

    def examples(self, split: str, *, training: bool = False) -> Examples:
        """The pictures of one split in their order; in training an example for each caption."""
        content: Content = self.content
        numbers = content.pictures.numbers(split)
        rows = self._captions_of(numbers) if training else np.stack([numbers, content.ends[numbers]], 1)
        augmentation, captions = self.augmentation if training else None, content.pictures.captions
        features, seen = None if augmentation is not None else self.features, self.preprocessing
        frequencies = None
        written = self.references or not training
        if captions is not None and written:
            respell = content.language.respell
            frequencies = Frequencies.from_corpus([respell(text) for text in captions[number]] for number in numbers)
        collate = partial(
            CaptionBatch.collate,
            language=content.language,
            mean=seen.mean,
            std=seen.std,
            grid=None if features is None else features.grid,
            frequencies=frequencies,
        )
        lengths = None
        if training and self.bucketed and content.tokens is not None:
            lengths = content.tokens.lengths[rows[:, 1]].tolist()
        if augmentation is None:
            entries = Entries(content, rows, seen, features, written=written)
            return Examples(entries=entries, collate=collate, lengths=lengths)
        return Examples(
            entries=Entries(content, rows, None, None, written=written),
            collate=collate,
            lengths=lengths,
            augment=partial(augment, augmentation=augmentation, to=seen),
        )

    def see_through(self, backbone: ImageClassifierNet) -> None:
        """Makes examples of features that a frozen backbone computes, once, instead of pixels."""
        if not self.keeps_features:
            return
        if self.augmentation is not None:
            warn(
                "data.augmentation changes training pictures, so that their features are computed in every step; "
                "without it (data.augmentation=null) they are computed once and kept."
            )
            return
        pictures: CaptionSet = self.content.pictures
        reading = self.source.reading
        about = {**vars(self.preprocessing), "at_least": None if reading is None else self.options.min_side()}
        self.features = cache_features(
            backbone, pictures.pixels, self._pixels_of, cache=self.cache, preprocessing=about
        )

    def _pixels_of(self, numbers: range) -> Seen:
        """Yields the pixels of pictures in batches, read by the worker processes."""
        content, seen = self.content, self.preprocessing
        rows = np.stack([np.array(numbers), content.ends[numbers.start : numbers.stop]], 1)
        loader = Loader(
            Entries(content, rows, seen, None, written=True),
            collate=partial(CaptionBatch.collate, language=content.language, mean=seen.mean, std=seen.std),
            batch_size=_AT_ONCE,
            num_workers=self.batching.num_workers,
            shared=False,
        )
        try:
            for batch in loader:
                yield batch.source.pixels, [each.size for each in batch.written]
        finally:
            loader.close()

    def train_size(self) -> int:
        return len(self.examples("train", training=True).entries)

    def _captions_of(self, numbers: Int[np.ndarray, " k"]) -> Int[np.ndarray, "c 2"]:
        """The captions of pictures that are not too long, each with its picture."""
        content: Content = self.content
        assert content.tokens is not None
        counts = np.diff(content.ends)[numbers]
        pictures = np.repeat(numbers, counts)
        captions = np.concatenate([np.arange(*content.ends[n : n + 2]) for n in numbers.tolist()]).astype(np.int64)
        rows = np.stack([pictures, captions], 1)
        if self.max_length is None:
            return rows
        return rows[content.tokens.lengths[captions] <= self.max_length]

    def _pictures(self) -> CaptionSet:
        reading = self.source.reading
        if reading is None:
            return self.source.read()
        return self.source.read(reading=replace(reading, at_least=self.options.min_side(), fit=self.options.fit(3)))

    def _trained_language(self) -> TextCodec:
        state = self.trained_state
        return TextCodec.from_state(state["target_tokeniser"], state["target_tokens"])
