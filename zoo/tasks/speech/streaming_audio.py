"""Sound that is still arriving: read in blocks, converted and made features of in parts, as if all of it were there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile
import torch
import torchaudio
from jaxtyping import Float32

from zoo.errors import DataError
from zoo.tasks.speech.data.audio import SoundError, check_samples
from zoo.tasks.speech.data.decoder_noise import caught_noise, damage
from zoo.tasks.speech.data.features import Normalised
from zoo.tasks.speech.data.resampling import ratio_of

BLOCK = 0.1
"""Seconds of sound that are read at once."""
STANDARD_INPUT = "-"
_LOWPASS_WIDTH, _ROLLOFF = 6, 0.99
"""Defaults of `torchaudio.functional.resample`, which decide how many samples around it a result depends on."""


class AudioStream(NamedTuple):
    """A recording that is read in blocks.

    Attributes:
        rate: Samples per second.
        blocks: Its samples, mixed down to one channel.
    """

    rate: int
    blocks: Iterator[Float32[np.ndarray, " _"]]


@contextmanager
def read_audio_stream(path: str) -> Iterator[AudioStream]:
    """Opens a sound file, or with "-" a sound of standard input in a format that can be read from a pipe, such as WAV.

    Raises:
        DataError: It cannot be read.
    """
    name = "standard input" if path == STANDARD_INPUT else path
    if path != STANDARD_INPUT and not Path(path).is_file():
        raise DataError(f"{path}: there is no such file")
    try:
        source: Any = sys.stdin.fileno() if path == STANDARD_INPUT else path
        with caught_noise():
            opened = soundfile.SoundFile(source, closefd=path != STANDARD_INPUT)
        with opened as file:
            yield AudioStream(file.samplerate, _blocks(file))
    except soundfile.LibsndfileError as error:
        raise DataError(f"{name} is no sound that can be read ({error}). Give WAV, FLAC, OGG or MP3.") from error


def _blocks(file: soundfile.SoundFile) -> Iterator[Float32[np.ndarray, " _"]]:
    size = max(1, round(BLOCK * file.samplerate))
    while len(block := _read_block(file, size)):
        try:
            check_samples(block)
        except SoundError as error:
            raise DataError(f"{file.name}: {error}. {error.fault.remedy}") from error
        yield block.mean(1)


def _read_block(file: soundfile.SoundFile, size: int) -> Float32[np.ndarray, "_ c"]:
    with caught_noise() as noise:
        block: np.ndarray = file.read(size, dtype="float32", always_2d=True)
    if (said := damage(noise)) is not None:
        raise DataError(f"{file.name}: it is damaged ({said.rstrip('.!')}). Make it anew from its source.")
    return block


class StreamingResampler:
    """Samples at another rate, in parts.

    Args:
        rate: Samples per second of what arrives.
        wanted: Samples per second of the result.
    """

    def __init__(self, rate: float, wanted: float) -> None:
        self.ratio = ratio_of(rate, wanted)
        old, new = self.ratio.numerator, self.ratio.denominator
        reach = ceil(_LOWPASS_WIDTH * old / (min(old, new) * _ROLLOFF))
        self.around = ceil(reach / old)
        """Number of blocks of `old` samples, before and behind a block, on which the `new` samples of it depend."""
        self.left = np.zeros(self.around * old, dtype=np.float32)
        self.arrived = self.made = 0

    def hear(self, samples: Float32[np.ndarray, " n"], *, last: bool = False) -> Float32[np.ndarray, " m"]:
        """Returns the samples that no later sample can change; all that are missing, if these are the last."""
        if self.ratio == 1:
            return samples
        old, new = self.ratio.numerator, self.ratio.denominator
        self.arrived += len(samples)
        x = np.concatenate([self.left, samples])
        if last:
            x = np.pad(x, (0, self.around * old + -len(x) % old))
        blocks = len(x) // old - 2 * self.around
        if blocks <= 0:
            self.left = x
            return x[:0]
        used = torch.from_numpy(x[: (blocks + 2 * self.around) * old])
        found = torchaudio.functional.resample(used, old, new)[self.around * new : (self.around + blocks) * new]
        self.left = x[blocks * old :]
        total = ceil(Fraction(self.arrived) / self.ratio) if last else self.made + len(found)
        found = found[: total - self.made]
        self.made += len(found)
        return np.asarray(found.numpy())


class StreamingFeatures:
    """Frames of sound, in parts, normalised over the training split or not at all.

    Args:
        normalised: Makes the features; see `refusal`.
    """

    def __init__(self, normalised: Normalised) -> None:
        self.normalised = normalised
        self.left = np.zeros(normalised.features.left_padding, dtype=np.float32)
        self.arrived = self.made = 0

    def hear(self, samples: Float32[np.ndarray, " n"], *, last: bool = False) -> Float32[np.ndarray, "t f"]:
        """Returns the frames whose windows are complete; zeros stand for the sound behind the last samples."""
        features = self.normalised.features
        window, hop = features.window_samples, features.hop_samples
        self.arrived += len(samples)
        x = np.concatenate([self.left, samples])
        count = (len(x) - window) // hop + 1
        if last:
            count = features.count(self.arrived) - self.made
            x = np.pad(x, (0, max(0, (count - 1) * hop + window - len(x))))
        if count <= 0:
            self.left = x
            return np.zeros((0, self.normalised.width), dtype=np.float32)
        self.left = x[count * hop :]
        self.made += count
        return self.normalised(features.compute_windows(x[: (count - 1) * hop + window]))


def refusal(normalised: Normalised) -> str | None:
    """Returns why features cannot be made in parts; None if they can."""
    features = normalised.features
    if features.kind == "given":
        return "its features stand in files, and are not made of sound"
    if features.normalise == "utterance":
        return "its features are normalised over the whole recording: train with data.features.normalise=global"
    if features.deltas:
        return "its features have derivatives, which depend on later frames: train with data.features.deltas=0"
    return None
