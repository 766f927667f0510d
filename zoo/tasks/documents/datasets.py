"""Data sets of texts that a configuration can name; their arguments are the options of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from zoo.data.download import search_folders
from zoo.data.encodings import UTF8, Encoding
from zoo.data.tables import OnBadRow
from zoo.tasks.dataset_registry import dataset
from zoo.tasks.documents.data.corpus import Corpus
from zoo.tasks.documents.data.published import read_imdb, read_newsgroups, read_yelp
from zoo.tasks.documents.data.readers import MOST_CHARACTERS, ReaderOptions, read_text_folder, read_text_table
from zoo.tasks.documents.datamodule import DocumentData, DocumentSource
from zoo.tasks.documents.label_set import Targets
from zoo.tasks.documents.synthetic import SyntheticReviews, plant
from zoo.types import PositiveInt, Seed, validate_ranges


@dataset(DocumentData, generator=plant)
def planted_reviews(generate: Callable[[], SyntheticReviews]) -> DocumentSource:
    """Generated reviews in which one phrase in one sentence determines the class: see `planted.plant`."""
    return DocumentSource(lambda: _corpus(generate()))


@dataset(DocumentData)
@validate_ranges
def imdb(
    *,
    root: str,
    cache: str | None = None,
    targets: Literal["single", "ordinal"] = "single",
    validation: PositiveInt = 2500,
) -> DocumentSource:
    """Film reviews (Maas et al. 2011) with the official test set.

    Args:
        root: Folder of data sets, which has the archive in `imdb`.
        cache: Folder of derived files, which is searched too.
        targets: `single` for good and bad, `ordinal` for the ratings 1-4 and 7-10.
        validation: Number of training reviews that become the validation split.
    """
    return _make_published(read_imdb, root, cache, targets=targets, validation=validation)


@dataset(DocumentData)
@validate_ranges
def newsgroups20(*, root: str, cache: str | None = None, validation: PositiveInt = 1000) -> DocumentSource:
    """Messages of 20 Newsgroups (Lang 1995) in the version sorted by date, with its test set and without headers."""
    return _make_published(read_newsgroups, root, cache, validation=validation)


@dataset(DocumentData)
@validate_ranges
def yelp(
    *,
    root: str,
    cache: str | None = None,
    targets: Literal["single", "ordinal"] = "ordinal",
    validation: PositiveInt = 10_000,
) -> DocumentSource:
    """Yelp reviews with one to five stars (Zhang et al. 2015), with the official test set."""
    return _make_published(read_yelp, root, cache, targets=targets, validation=validation)


@dataset(DocumentData)
@validate_ranges
def text_table(
    *,
    table: str,
    text: str = "text",
    label: str = "label",
    id: str | None = None,
    split: str = "split",
    targets: Targets = "single",
    on_bad_row: OnBadRow = "error",
    encoding: Encoding = UTF8,
    most_characters: PositiveInt = MOST_CHARACTERS,
    split_seed: Seed = 0,
    cache: str | None = None,
) -> DocumentSource:
    """The user's own texts in a table with one row per text; see data/README.md."""
    reading = ReaderOptions(
        text=text,
        label=label,
        id=id,
        split=split,
        targets=targets,
        on_bad_row=on_bad_row,
        encoding=encoding,
        most_characters=most_characters,
        cache=None if cache is None else Path(cache),
    )
    read = partial(read_text_table, Path(table), reading, split_seed=split_seed)
    return DocumentSource(read, reading, is_own=True, place=Path(table))


@dataset(DocumentData)
@validate_ranges
def text_folder(
    *,
    folder: str,
    targets: Literal["single", "ordinal"] = "single",
    on_bad_row: OnBadRow = "error",
    encoding: Encoding = UTF8,
    most_characters: PositiveInt = MOST_CHARACTERS,
    split_seed: Seed = 0,
) -> DocumentSource:
    """The user's own texts in one folder per class; see data/README.md."""
    reading = ReaderOptions(targets=targets, on_bad_row=on_bad_row, encoding=encoding, most_characters=most_characters)
    read = partial(read_text_folder, Path(folder), reading, split_seed=split_seed)
    return DocumentSource(read, reading, is_own=True, place=Path(folder))


def _corpus(reviews: SyntheticReviews) -> Corpus:
    """Converts generated reviews to sentences of words."""
    words = [reviews.vocabulary[number] for number in reviews.words.tolist()]
    ends = reviews.sentence_lengths.cumsum()
    sentences = [" ".join(words[end - size : end]) for end, size in zip(ends, reviews.sentence_lengths, strict=True)]
    last = reviews.review_lengths.cumsum()
    first = last - reviews.review_lengths
    bounds = np.concatenate([[0], ends])
    return Corpus(
        texts=[sentences[start:end] for start, end in zip(first, last, strict=True)],
        ids=[f"review {number}" for number in range(1, len(reviews.labels) + 1)],
        targets="single",
        label_names=tuple(reviews.classes),
        labels=reviews.labels,
        splits=reviews.splits,
        gold_words=[reviews.gold_words[bounds[start] : bounds[end]] for start, end in zip(first, last, strict=True)],
        gold_sentences=[reviews.gold_sentences[start:end] for start, end in zip(first, last, strict=True)],
    )


def _make_published(read: Callable[..., Corpus], root: str, cache: str | None, **options: Any) -> DocumentSource:
    reading = ReaderOptions(cache=None if cache is None else Path(cache))
    return DocumentSource(partial(read, search_folders(root, cache), **options), reading)
