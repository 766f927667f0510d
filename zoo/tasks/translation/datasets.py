"""The data sets of pairs of texts that can be named in a configuration; their options are its schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from zoo.data.download import search_folders
from zoo.data.encodings import UTF8, Encoding
from zoo.data.splits import SPLITS
from zoo.data.tables import OnBadRow
from zoo.errors import ConfigError
from zoo.tasks.dataset_registry import dataset
from zoo.tasks.translation.data.corpus import Corpus
from zoo.tasks.translation.data.published import read_iwslt14, read_multi30k
from zoo.tasks.translation.data.readers import MOST_CHARACTERS, Aligned, ReaderOptions, read_pair_files, read_pair_table
from zoo.tasks.translation.datamodule import PairData, PairSource
from zoo.tasks.translation.synthetic import SyntheticPairs, plant
from zoo.tasks.translation.synthetic_summaries import plant_summaries
from zoo.types import PositiveInt, Seed, validate_ranges

Files = str | Mapping[str, str]
"""A file, or a file of each split: {train: a.de, val: b.de, test: c.de}."""


@dataset(PairData, generator=plant)
def planted_translation(generate: Callable[[], SyntheticPairs]) -> PairSource:
    """Generated sentences with translations into an invented language: see `planted.plant`."""
    return PairSource(lambda: _corpus(generate()))


@dataset(PairData, generator=plant_summaries)
def planted_summaries(generate: Callable[[], SyntheticPairs]) -> PairSource:
    """Generated documents with summaries: see `summaries.plant_summaries`."""
    return PairSource(lambda: _corpus(generate()))


@dataset(PairData)
def multi30k(
    *,
    root: str,
    cache: str | None = None,
    direction: Literal["de-en", "en-de", "fr-en", "en-fr", "de-fr", "fr-de"] = "de-en",
) -> PairSource:
    """Image captions (Elliott et al. 2016), with the test set of 2016."""
    return PairSource(partial(read_multi30k, search_folders(root, cache), direction))


@dataset(PairData)
def iwslt14(*, root: str, cache: str | None = None, direction: Literal["de-en", "en-de"] = "de-en") -> PairSource:
    """Talks of TED (Cettolo et al. 2014), held out as by Ranzato et al. 2016."""
    return PairSource(partial(read_iwslt14, search_folders(root, cache), direction))


@dataset(PairData)
@validate_ranges
def text_pairs(
    *,
    table: str | None = None,
    source_file: Files | None = None,
    target_file: Files | None = None,
    alignment_file: Files | None = None,
    source: str = "source",
    target: str = "target",
    alignment: str = "alignment",
    id: str | None = None,
    split: str = "split",
    on_bad_row: OnBadRow = "error",
    encoding: Encoding = UTF8,
    most_characters: PositiveInt = MOST_CHARACTERS,
    split_seed: Seed = 0,
    cache: str | None = None,
) -> PairSource:
    """The user's own texts and translations, a table or aligned text files: see data/README.md."""
    reading = ReaderOptions(
        source=source,
        target=target,
        alignment=alignment,
        id=id,
        split=split,
        on_bad_row=on_bad_row,
        encoding=encoding,
        most_characters=most_characters,
    )
    index = None if cache is None else Path(cache)
    place = None if table is None else Path(table)
    options: dict[str, Files | None] = {
        "source_file": source_file,
        "target_file": target_file,
        "alignment_file": alignment_file,
    }
    if table is not None:
        given = next((name for name, value in options.items() if value is not None), None)
        if given is not None:
            raise ConfigError(f"data.table and data.{given} are both given: give either a table or text files")
        read = partial(read_pair_table, Path(table), reading, cache=index, split_seed=split_seed)
    else:
        read = partial(read_pair_files, _align(options), reading, cache=index, split_seed=split_seed)
    return PairSource(read, reading, is_own=True, place=place)


def _align(options: Mapping[str, Files | None]) -> dict[str, Aligned]:
    """The files of each split; "" for files that have all pairs."""
    for name in ("source_file", "target_file"):
        if options[name] is None:
            raise ConfigError(f"data.{name} is missing: give data.source_file and data.target_file, or data.table")
    by_split = {
        name: {"": value} if isinstance(value, str) else dict(value)
        for name, value in options.items()
        if value is not None
    }
    for name, files in by_split.items():
        if set(files) != {""} and set(files) != set(SPLITS):
            raise ConfigError(f"data.{name}={files}: write one file, or {{train: FILE, val: FILE, test: FILE}}")
        if set(files) != set(by_split["source_file"]):
            raise ConfigError(f"data.{name} and data.source_file: write one file in both, or a file for each split")
    splits = [each for each in SPLITS if each in by_split["source_file"]] or [""]
    return {split: Aligned(*(Path(files[split]) for files in by_split.values())) for split in splits}


def _corpus(sentences: SyntheticPairs) -> Corpus:
    """Generated sentences as a corpus."""
    links = [np.array(each, dtype=np.int32).reshape(-1, 2) for each in sentences.links]
    ids = [f"text {number}" for number in range(1, len(links) + 1)]
    return Corpus(sentences.sources, sentences.targets, ids, sentences.splits, links)
