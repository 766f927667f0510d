"""A set of recordings, as all readers return it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int

from zoo.data.splits import SplitSet
from zoo.tasks.speech.data.features import Features

Rows = Sequence[Float32[np.ndarray, "_ f"]]
"""The features of recordings, by number."""


class Sounds(Protocol):
    """Recordings, whose features are made or read from the disk when they are asked for."""

    def features(self, features: Features, speed: float = 1.0) -> Rows:
        """Returns the features of all recordings, before normalisation.

        Args:
            features: What features are.
            speed: Factor by which a recording is played faster, with a higher pitch.
        """


@dataclass(frozen=True, eq=False)
class Corpus(SplitSet):
    """Recordings with their transcripts and splits.

    Args:
        sounds: The recordings.
        texts: What is said in each; None if it is not known.
        ids: Name of each recording.
        splits: Split of each: `TRAIN`, `VAL`, `TEST` or `NONE` of `zoo.data.splits`.
        speakers: Name of each speaker, "" if it is not known. Default: no speaker is known.
        snrs: Signal-to-noise ratio of each recording in dB. Default: unknown.
        times: For each character of each text, its begin and end in seconds, equal for a character that has no sound.
            Default: unknown.
    """

    sounds: Sounds
    texts: Sequence[str | None]
    ids: Sequence[str]
    splits: Int[np.ndarray, " n"]
    speakers: Sequence[str] | None = None
    snrs: Sequence[float] | None = None
    times: Sequence[Float64[np.ndarray, "_ 2"]] | None = None

    @property
    def is_transcribed(self) -> Bool[np.ndarray, " n"]:
        """Mask of the recordings whose transcripts are known."""
        return np.array([text is not None for text in self.texts], dtype=bool)


@dataclass(frozen=True, eq=False)
class GeneratedSounds:
    """Recordings that are generated, each when its features are made.

    Args:
        make: Makes the samples of a recording, given its number and the speed.
        count: Number of recordings.
    """

    make: Callable[[int, Features, float], Float32[np.ndarray, " n"]]
    count: int

    def features(self, features: Features, speed: float = 1.0) -> list[Any]:
        return features.compute_all(self.make(number, features, speed) for number in range(self.count))
