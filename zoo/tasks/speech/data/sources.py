"""The data sets of recordings that can be named in a configuration; their options are its schema."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float32

from zoo.tasks.datasets import dataset
from zoo.tasks.speech.data.corpus import Corpus, GeneratedSounds
from zoo.tasks.speech.data.features import Features
from zoo.tasks.speech.data.resampling import resampled
from zoo.tasks.speech.data.speech_data import SpeechData, SpeechSource
from zoo.tasks.speech.planted import RATE, Spoken, plant


@dataset(SpeechData, generator=plant)
def planted_tones(generate: Callable[[], Spoken]) -> SpeechSource:
    """Generated speech, of which it is known which frames spell each letter: see `planted.plant`."""
    return SpeechSource(lambda: _corpus(generate()))


def _corpus(spoken: Spoken) -> Corpus:
    """Generated utterances as a corpus."""

    def make(number: int, features: Features, speed: float) -> Float32[np.ndarray, " n"]:
        return resampled(spoken.samples(number), RATE, features.rate, speed)

    return Corpus(
        sounds=GeneratedSounds(make, len(spoken.texts)),
        texts=spoken.texts,
        ids=[f"utterance {number}" for number in range(1, len(spoken.texts) + 1)],
        splits=spoken.splits,
        snrs=spoken.snrs,
        times=spoken.times,
    )
