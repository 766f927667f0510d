"""Recordings in files: their features are made once, kept on the disk, and mapped into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from zoo.data import ragged
from zoo.data.cache import Arrays, cached_arrays, identity
from zoo.data.lazy_text import ConcatSequence, Subset
from zoo.errors import ConfigError, warn
from zoo.tasks.speech.data.audio import (
    DEFAULT_LIMITS,
    Clip,
    Fault,
    Limits,
    SoundError,
    is_given,
    read_given,
    read_sound,
)
from zoo.tasks.speech.data.corpus import Rows
from zoo.tasks.speech.data.features import GIVEN, Features, one_thread
from zoo.tasks.speech.data.resampling import resample

_TOGETHER = 256
"""Recordings whose features are one file of the cache."""
_SAMPLES = 8
"""Parts of a file that its identity is made of, beside its size and time."""
_CHECKS = 2
"""Number of the rules by which recordings are refused: with others, features are made anew."""
_LOWER = 0.99
"""A rate below this share of the wanted one lacks frequencies."""


@dataclass(frozen=True, eq=False)
class FileSounds:
    """Recordings in files.

    Args:
        clips: The files, or parts of files.
        limits: Shortest and longest recording.
        cache: Folder of derived files, or None: features are made and held in memory.
    """

    clips: Sequence[Clip]
    limits: Limits = DEFAULT_LIMITS
    cache: Path | None = None
    _features: dict[Any, ConcatSequence] = field(default_factory=dict)

    def features(self, features: Features, speed: float = 1.0) -> Rows:
        """Returns the features of all recordings; one that cannot be used has no row (`fault`)."""
        key = tuple(sorted(features.made_of().items())), speed
        if key not in self._features:
            if speed != 1.0 and features.kind == GIVEN:
                raise ConfigError(
                    "data.augmentation.speeds needs recordings, and .npy files have features; write [1.0]"
                )
            parts = list(self._parts(features, speed))
            if speed == 1.0:
                self._warn(features, parts)
            self._features[key] = ConcatSequence([ragged.RaggedArray(part["values"], part["ends"]) for part in parts])
        return self._features[key]

    def fault(self, number: int, features: Features) -> Fault | None:
        """Returns why a recording has no features, or None if it has some."""
        found = self.features(features)
        if len(found[number]):
            return None
        try:
            x = _read(self.clips[number], features, self.limits).rows
        except SoundError as error:
            return error.fault
        what = f"its frames have {x.shape[1]} features, and those of other files {found[0].shape[1]}"
        return Fault(what, "Give files with the same features.")

    def select(self, numbers: Iterable[int]) -> FileSounds:
        """Returns some of the recordings, without reading them again."""
        chosen = list(numbers)
        made = {key: Subset(joined, chosen) for key, joined in self._features.items()}
        return FileSounds([self.clips[number] for number in chosen], self.limits, self.cache, made)  # type: ignore[arg-type]

    def _parts(self, features: Features, speed: float) -> Iterator[Arrays]:
        """Yields the features of neighbouring recordings, from the cache where they are in it."""
        width = features.width or self._width(features)
        for start in range(0, len(self.clips), _TOGETHER):
            clips = self.clips[start : start + _TOGETHER]
            made_of = {**features.made_of(), "speed": speed, "limits": list(self.limits), "width": width}
            made_of["checks"] = _CHECKS
            made_of["clips"] = [[_identity(clip.path), clip.start, clip.end] for clip in clips]

            def make(clips: Sequence[Clip] = clips) -> Arrays:
                return _make_features(clips, features, self.limits, width, speed)

            yield cached_arrays(self.cache, "speech", made_of, make)

    def _width(self, features: Features) -> int:
        """Returns the number of features in the first file that can be read."""
        for clip in self.clips:
            try:
                return int(_read(clip, features, self.limits).rows.shape[1])
            except SoundError:
                continue
        return 0

    def _warn(self, features: Features, parts: Sequence[Arrays]) -> None:
        """Says how many recordings are clipped, and how many lack high frequencies."""
        place = self.clips[0].path.parent if self.clips else ""
        for name, what in (
            ("clipped", "clipped: their loudest parts are cut off"),
            ("low", f"of a rate below data.features.rate={features.rate}, and lack high frequencies"),
        ):
            count = sum(int(part[name].sum()) for part in parts)
            if count:
                warn(f"{place}: {count:,} of {len(self.clips):,} recordings are {what}.")


class _Read(NamedTuple):
    rows: Float32[np.ndarray, "t f"]
    is_clipped: bool = False
    is_low: bool = False


def _make_features(clips: Sequence[Clip], features: Features, limits: Limits, width: int, speed: float) -> Arrays:
    """Makes the features of recordings; those that cannot be used have no rows."""
    none = _Read(np.zeros((0, width), dtype=np.float32))
    found = []
    with one_thread():
        for clip in clips:
            try:
                made = _read(clip, features, limits, speed)
                found.append(made if made.rows.shape[1] == width else none)
            except SoundError:
                found.append(none)
    return {
        "values": np.concatenate([none.rows, *(each.rows for each in found)]),
        "ends": np.cumsum([0, *(len(each.rows) for each in found)]),
        "clipped": np.array([each.is_clipped for each in found], dtype=np.uint8),
        "low": np.array([each.is_low for each in found], dtype=np.uint8),
    }


def _read(clip: Clip, features: Features, limits: Limits, speed: float = 1.0) -> _Read:
    """Returns the features of one recording."""
    if features.kind == GIVEN:
        if not is_given(clip.path):
            raise SoundError("it is no .npy file, which data.features.kind=given reads", "Give features.")
        return _Read(read_given(clip, limits, features.hop))
    if is_given(clip.path):
        raise SoundError(
            f"it is a file of features, and data.features.kind={features.kind} makes them of sounds",
            "Give a recording; a model of .npy files is trained with data.features.kind=given.",
        )
    sound = read_sound(clip, limits)
    samples = resample(sound.samples, sound.rate, features.rate, speed)
    if not features.count(len(samples)):
        raise SoundError("the recording is shorter than a frame", "Give a longer one.")
    return _Read(features.compute(samples), sound.is_clipped, sound.rate < _LOWER * features.rate)


def _identity(path: Path) -> str:
    if not path.is_file():  # a pipe would be waited for
        return ""
    try:
        with path.open("rb") as file:
            return identity(file, _SAMPLES)
    except OSError:
        return ""
