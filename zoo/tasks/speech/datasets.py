"""The data sets of recordings that can be named in a configuration; their options are its schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
from jaxtyping import Float32

from zoo.data.download import search_folders
from zoo.data.encodings import UTF8, Encoding
from zoo.data.tables import OnBadRow
from zoo.errors import ConfigError
from zoo.tasks.dataset_registry import dataset
from zoo.tasks.speech.data.audio import Limits
from zoo.tasks.speech.data.corpus import Corpus, GeneratedSounds
from zoo.tasks.speech.data.features import Features
from zoo.tasks.speech.data.published import (
    Strings,
    read_fsdd,
    read_fsdd_strings,
    read_librispeech,
    read_speech_commands,
)
from zoo.tasks.speech.data.readers import ReaderOptions, read_folder, read_manifest
from zoo.tasks.speech.data.resampling import resample
from zoo.tasks.speech.datamodule import SpeechData, SpeechSource
from zoo.tasks.speech.synthetic import RATE, Spoken, plant
from zoo.types import NonNegativeFloat, PositiveFloat, PositiveInt, Seed, validate_ranges


@dataset(SpeechData, generator=plant)
def planted_tones(generate: Callable[[], Spoken]) -> SpeechSource:
    """Generated speech, of which it is known which frames spell each letter: see `planted.plant`."""
    return SpeechSource(lambda features: _corpus(generate()))


@dataset(SpeechData)
def fsdd(*, root: str, cache: str | None = None, left_out: str | None = None) -> SpeechSource:
    """Spoken digits (Jackson et al. 2018), takes 0-4 for test, 5-9 for validation.

    Args:
        root: Folder of data sets, which has `fsdd/recordings`.
        cache: Folder of derived files, which is searched too.
        left_out: A speaker of whom the test split is alone, and the others have nothing.
    """
    return SpeechSource(partial(read_fsdd, search_folders(root, cache), _path(cache), left_out))


@dataset(SpeechData)
@validate_ranges
def fsdd_strings(
    *,
    root: str,
    cache: str | None = None,
    strings: PositiveInt = 4000,
    held_out: PositiveInt = 400,
    fewest: PositiveInt = 3,
    most: Annotated[int, ">= 1", "<= 1000"] = 7,
    shortest_pause: NonNegativeFloat = 0.05,
    longest_pause: NonNegativeFloat = 0.3,
    snr: Annotated[float, "any"] = 40.0,
    left_out: str | None = None,
    seed: Seed = 0,
) -> SpeechSource:
    """Strings of digits of one speaker, joined with pauses; their boundaries are the gold answer."""
    how = Strings(
        strings=strings,
        held_out=held_out,
        fewest=fewest,
        most=most,
        shortest_pause=shortest_pause,
        longest_pause=longest_pause,
        snr=snr,
        left_out=left_out,
        seed=seed,
    )
    return SpeechSource(lambda features: read_fsdd_strings(search_folders(root, cache), how, features))


@dataset(SpeechData)
@validate_ranges
def librispeech(
    *,
    root: str,
    cache: str | None = None,
    train: str = "train-clean-100",
    val: str = "dev-clean",
    test: str = "test-clean",
    shortest_seconds: NonNegativeFloat = 1.0,
    longest_seconds: PositiveFloat = 16.7,
) -> SpeechSource:
    """Read English books (Panayotov et al. 2015).

    Args:
        root: Folder of data sets, which has `LibriSpeech` or its archives.
        cache: Folder of derived files, which is searched too, and into which archives are unpacked.
        train: Parts for training, joined by "+".
        val: Likewise for validation.
        test: Likewise for the test.
        shortest_seconds: Shorter training recordings are left out, and counted.
        longest_seconds: Longer ones likewise.
    """
    limits = Limits(shortest_seconds, longest_seconds)
    folders, parts = search_folders(root, cache), (train, val, test)
    return SpeechSource(partial(read_librispeech, folders, _path(cache), parts, limits))


@dataset(SpeechData)
def speech_commands(*, root: str, cache: str | None = None) -> SpeechSource:
    """Single words (Warden 2018), version 2, split by its lists."""
    return SpeechSource(partial(read_speech_commands, search_folders(root, cache), _path(cache)))


@dataset(SpeechData)
@validate_ranges
def audio_manifest(
    *,
    table: str | None = None,
    folder: str | None = None,
    path: str = "path",
    text: str = "text",
    start: str = "start",
    end: str = "end",
    speaker: str = "speaker",
    split: str = "split",
    id: str | None = None,
    on_bad_row: OnBadRow = "error",
    encoding: Encoding = UTF8,
    shortest_seconds: NonNegativeFloat = 0.05,
    longest_seconds: PositiveFloat = 60.0,
    split_seed: Seed = 0,
    cache: str | None = None,
) -> SpeechSource:
    """The user's own recordings, a table or a folder of sounds with their transcripts: see data/README.md."""
    reading = ReaderOptions(
        path=path,
        text=text,
        start=start,
        end=end,
        speaker=speaker,
        split=split,
        id=id,
        on_bad_row=on_bad_row,
        encoding=encoding,
        limits=Limits(shortest_seconds, longest_seconds),
        cache=_path(cache),
    )
    if table is not None:
        place = None if folder is None else Path(folder)
        return SpeechSource(partial(read_manifest, Path(table), place, reading, split_seed=split_seed), reading)
    if folder is None:
        raise ConfigError(
            "data.table and data.folder are missing: give a table, or a folder of sounds with transcripts"
        )
    return SpeechSource(partial(read_folder, Path(folder), reading, split_seed=split_seed), reading)


def _path(cache: str | None) -> Path | None:
    return None if cache is None else Path(cache)


def _corpus(spoken: Spoken) -> Corpus:
    """Generated utterances as a corpus."""

    def make(number: int, features: Features, speed: float) -> Float32[np.ndarray, " n"]:
        return resample(spoken.samples(number), RATE, features.rate, speed)

    return Corpus(
        sounds=GeneratedSounds(make, len(spoken.texts)),
        texts=spoken.texts,
        ids=[f"utterance {number}" for number in range(1, len(spoken.texts) + 1)],
        splits=spoken.splits,
        snrs=spoken.snrs,
        times=spoken.times,
    )
