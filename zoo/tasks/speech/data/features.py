"""Features of recordings: a row for each frame of the sound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
import torchaudio
from jaxtyping import Float, Float32, Float64, Int
from torch import Tensor

from zoo.errors import CheckpointError, ConfigError
from zoo.types import validate_ranges
from zoo.validation import Predicate

GIVEN = "given"
"""The kind of features that stand in files of the user's own."""
VERSION = 1
"""To be raised when the same options give other features, so that those on the disk are made anew."""
_FLOOR = 1e-6
"""Added to the power in a band before its logarithm: that of the rounding of 16 bits, so that silence is not noise."""
_LOWEST = 20.0
"""Frequency at which the lowest band begins, in Hz."""
_SMALLEST = 1e-5
_DELTA_WINDOW = 5


def _one_of(*names: str) -> Predicate:
    return Predicate(f"one of {', '.join(names)}", lambda value: type(value) is str and value in names)


def _make_range(least: int, most: int) -> Predicate:
    return Predicate(
        f"a whole number from {least} to {most}", lambda value: type(value) is int and least <= value <= most
    )


_SECONDS = Predicate("a number of seconds up to 1", lambda value: type(value) in (int, float) and 0 < value <= 1)
_FINITE = Predicate("a finite number", lambda value: type(value) is float and math.isfinite(value))

FEATURES = {
    "kind": _one_of("log_mel", "mfcc", GIVEN),
    "rate": _make_range(1000, 192_000),
    "mels": _make_range(1, 512),
    "coefficients": _make_range(1, 512),
    "window": _SECONDS,
    "hop": _SECONDS,
    "deltas": _make_range(0, 2),
    "normalise": _one_of("utterance", "global", "none"),
    "width": _make_range(1, 1 << 16),
    "mean": [_FINITE],
    "std": [Predicate("a positive number", lambda value: type(value) is float and 0 < value < math.inf)],
}
"""Form of the state of features, in a checkpoint."""


@validate_ranges
@dataclass(frozen=True, kw_only=True)
class Features:
    """Options of features.

    Frame t covers the seconds from `t * hop` to `(t + 1) * hop`: its window is centred there. Zeros stand for the sound
    before the beginning and after the end.

    Args:
        kind: "log_mel", "mfcc", or "given": the rows of the user's own .npy files, without any change but
            normalisation.
        rate: Samples per second to which recordings are converted.
        mels: Number of bands on the mel scale.
        coefficients: Number of MFCC coefficients.
        window: Seconds of a window.
        hop: Seconds from one frame to the next.
        deltas: 1 appends the first derivatives of all features over time, 2 the second ones too.
        normalise: "utterance": mean 0 and deviation 1 for each feature of each recording; "global": likewise over the
            training split, whose mean and deviation are kept in the checkpoint; "none".
    """

    kind: Literal["log_mel", "mfcc", "given"] = "log_mel"
    rate: Annotated[int, ">= 1000", "<= 192000"] = 8000
    mels: Annotated[int, ">= 1", "<= 512"] = 40
    coefficients: Annotated[int, ">= 1", "<= 512"] = 13
    window: Annotated[float, "> 0", "<= 1"] = 0.025
    hop: Annotated[float, "> 0", "<= 1"] = 0.01
    deltas: Annotated[int, ">= 0", "<= 2"] = 0
    normalise: Literal["utterance", "global", "none"] = "utterance"

    def __post_init__(self) -> None:
        if self.hop_samples < 1:
            raise ConfigError(f"data.features.hop={self.hop}: a frame needs one of {self.rate:,} samples per second")
        if self.window < self.hop:
            what = f"data.features.window={self.window} is shorter than hop={self.hop}"
            raise ConfigError(f"{what}: some of the sound would be in no frame")
        if self.kind == "mfcc" and self.coefficients > self.mels:
            raise ConfigError(f"data.features.coefficients={self.coefficients}: {self.mels} mels give no more")

    @property
    def width(self) -> int | None:
        """Number of features of a frame; None if files decide it."""
        if self.kind == GIVEN:
            return None
        return (self.mels if self.kind == "log_mel" else self.coefficients) * (1 + self.deltas)

    @property
    def hop_samples(self) -> int:
        return round(self.hop * self.rate)

    @property
    def window_samples(self) -> int:
        return round(self.window * self.rate)

    @property
    def left_padding(self) -> int:
        """Number of zeros before the first sample, which centre the window of a frame."""
        return (self.window_samples - self.hop_samples) // 2

    def count(self, samples: int) -> int:
        """Returns the number of frames of a recording: those that end before it does."""
        return samples // self.hop_samples

    def compute(self, samples: Float32[np.ndarray, " n"]) -> Float32[np.ndarray, "t f"]:
        """Returns the features of a recording of at least one hop, without normalisation."""
        count = self.count(len(samples))
        after = (count - 1) * self.hop_samples + self.window_samples - self.left_padding - len(samples)
        return self.compute_windows(np.pad(samples[: max(0, after + len(samples))], (self.left_padding, max(0, after))))

    def compute_windows(self, samples: Float32[np.ndarray, " n"]) -> Float32[np.ndarray, "t f"]:
        """Returns the features of all windows that are complete, a hop apart, the first at the first sample.

        Derivatives need two frames on each side, and are those of these windows alone.
        """
        windows = torch.from_numpy(np.ascontiguousarray(samples)).unfold(0, self.window_samples, self.hop_samples)
        bank = _filters(self)
        spectrum = torch.fft.rfft(windows * _hann(self.window_samples), _points(self))
        power = spectrum.real.square() + spectrum.imag.square()
        x = (power @ bank + _FLOOR).log()
        if self.kind == "mfcc":
            x = x @ _cosines(self)
        parts = [x]
        for _ in range(self.deltas):
            parts.append(torchaudio.functional.compute_deltas(parts[-1].T, win_length=_DELTA_WINDOW).T)
        found: np.ndarray = torch.cat(parts, 1).numpy()
        return found

    def compute_all(self, recordings: Iterable[Float32[np.ndarray, " _"]]) -> list[Float32[np.ndarray, "_ f"]]:
        """Returns the features of several recordings."""
        with one_thread():
            return [self.compute(each) for each in recordings]

    def frames(self, seconds: Float64[np.ndarray, "n 2"], count: int) -> Int[np.ndarray, "n 2"]:
        """Returns the frames whose middle is in each span: the first, and the one after the last."""
        found = np.ceil(seconds * self.rate / self.hop_samples - 0.5 - 1e-6).astype(np.int64)
        return found.clip(0, count)

    def made_of(self) -> dict[str, Any]:
        """Returns what decides the features of a recording, before normalisation."""
        decides = {name: value for name, value in asdict(self).items() if name != "normalise"}
        return {**decides, "version": VERSION, "torchaudio": torchaudio.__version__.partition("+")[0]}


@dataclass(frozen=True, eq=False)
class Scale:
    """Mean and deviation of each feature over the training split, where normalisation is global.

    Args:
        mean: The mean of each feature.
        std: The deviation of each feature.
    """

    mean: Float32[np.ndarray, " f"]
    std: Float32[np.ndarray, " f"]

    @classmethod
    def measure(cls, recordings: Iterable[Float32[np.ndarray, "_ f"]]) -> Scale:
        """Measures recordings, of which there is at least one."""
        count, total, squares = 0, np.float64(0.0), np.float64(0.0)
        for each in recordings:
            wide = each.astype(np.float64)
            count += len(each)
            total = total + wide.sum(0)
            squares = squares + (wide**2).sum(0)
        mean = total / count
        std = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
        return cls(np.asarray(mean, dtype=np.float32), np.maximum(std, _SMALLEST).astype(np.float32))

    def __call__(self, x: Float32[np.ndarray, "t f"]) -> Float32[np.ndarray, "t f"]:
        return np.asarray((x - self.mean) / self.std)


@dataclass(frozen=True, eq=False)
class Normalised:
    """Features as a net reads them.

    Args:
        features: Their options.
        width: Number of features of a frame.
        scale: Mean and deviation, where normalisation is global.
    """

    features: Features
    width: int
    scale: Scale | None = None

    def __call__(self, x: Float32[np.ndarray, "t f"]) -> Float32[np.ndarray, "t f"]:
        """Normalises the features of one recording."""
        if self.features.normalise == "none":
            return np.asarray(x)
        scale = self.scale if self.scale is not None else Scale.measure([x])
        return scale(x)

    def state(self) -> dict[str, Any]:
        """Returns options and statistics in plain types."""
        found = {"mean": [], "std": []} if self.scale is None else vars(self.scale)
        return {
            **asdict(self.features),
            "width": self.width,
            **{name: [float(value) for value in values] for name, values in found.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Restores features from the state of a checkpoint, whose form has been checked.

        Raises:
            CheckpointError: The options or statistics are not those of any training.
        """
        try:
            features = Features(**{each.name: state[each.name] for each in fields(Features)})
        except ConfigError as error:
            raise CheckpointError(f"the checkpoint is damaged: {error}") from error
        width, lengths = state["width"], {len(state["mean"]), len(state["std"])}
        is_global = features.normalise == "global"
        if features.width not in (None, width) or lengths != {width if is_global else 0}:
            raise CheckpointError("the checkpoint is damaged: the width of its features is not that of their options")
        if not is_global:
            return cls(features, width)
        return cls(features, width, Scale(*(np.array(state[name], dtype=np.float32) for name in ("mean", "std"))))


@contextmanager
def one_thread() -> Iterator[None]:
    """A context in which torch uses one thread: the work on a recording is too short to be shared out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _points(features: Features) -> int:
    """Returns the length of the Fourier transform: twice what a window needs, so that no low band is empty."""
    return 2 << (features.window_samples - 1).bit_length()


@lru_cache(maxsize=8)
def _hann(samples: int) -> Float[Tensor, " n"]:
    return torch.hann_window(samples)


@lru_cache(maxsize=8)
def _filters(features: Features) -> Float[Tensor, "frequencies mels"]:
    """Returns the triangular filters of the mel scale (HTK's formula)."""
    filters: Tensor = torchaudio.functional.melscale_fbanks(
        n_freqs=_points(features) // 2 + 1,
        f_min=_LOWEST,
        f_max=features.rate / 2,
        n_mels=features.mels,
        sample_rate=features.rate,
    )
    return filters


@lru_cache(maxsize=8)
def _cosines(features: Features) -> Float[Tensor, "mels coefficients"]:
    cosines: Tensor = torchaudio.functional.create_dct(features.coefficients, features.mels, norm="ortho")
    return cosines
