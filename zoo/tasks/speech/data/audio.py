"""Files of sounds: any format of libsndfile at any rate, mixed down, or features as .npy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
from jaxtyping import Bool, Float32

from zoo.data.option_hints import format_option
from zoo.data.splits import SPLITS
from zoo.tasks.speech.data import mp3
from zoo.tasks.speech.data.decoder_noise import caught_noise, damage

GIVEN_ENDING = ".npy"
ENDINGS = (".wav", ".flac", ".ogg", ".mp3", ".opus", ".aiff", ".aif", ".au", GIVEN_ENDING)
"""Endings of the files that folders are searched for; a table may name files with others."""
_SLOWEST, _FASTEST = 1000, 384_000
_FULL = 0.999
"""From this share of the largest value on a sample counts as full scale."""
_CLIPPED = 3
"""So many neighbouring samples of full scale are clipped."""
_LOUDEST = 1e9
"""Above this magnitude, a sample or a feature is no measurement: full scale is 1, or some 2e9 in a file of 32 bits."""
_PROMISED = re.compile(r"^\s*(?:data|SSND|Data Size)\s*:\s*(\d+) \(should be (\d+)\)", re.MULTILINE)
"""Where libsndfile says that a file has fewer bytes of sound than its header: WAV, AIFF and AU."""
_UNKNOWN_SIZE = 0x7FFFFF00
"""From this size on, a header was written before the sound was, by a program that did not know its length."""
_LATE = 0.05
"""Seconds by which an end may be behind that of the recording, from rounding."""
_COPY = "Copy it anew, or leave it out."


class Fault(NamedTuple):
    """What is wrong with a recording, and how to mend it."""

    what: str
    remedy: str


class SoundError(Exception):
    """A recording that cannot be used."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.fault = Fault(what, remedy)


class Limits(NamedTuple):
    """Shortest and longest recording, in seconds."""

    shortest: float = 0.05
    longest: float = 60.0

    def check(self, seconds: float) -> None:
        if seconds < self.shortest:
            what = f"the recording has {seconds:.3g} s, and {self.shortest:g} are the fewest"
            raise SoundError(what, f"Give a longer one, or lower {format_option('shortest_seconds')}.")
        if seconds > self.longest:
            what = f"the recording has {seconds:,.1f} s, and {self.longest:g} are the most"
            most = format_option("longest_seconds")
            raise SoundError(what, f"Cut it into parts by columns start and end, or raise {most}.")


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Clip:
    """A recording: a file, or a part of it.

    Args:
        path: The file.
        start: Where it begins, in seconds. Default: where the file does.
        end: Where it ends, in seconds. Default: where the file does.
    """

    path: Path
    start: float | None = None
    end: float | None = None


class Sound(NamedTuple):
    """What a file of sound holds."""

    samples: Float32[np.ndarray, " n"]
    rate: int
    is_clipped: bool


def read_sound(clip: Clip, limits: Limits) -> Sound:
    """Reads a recording, all channels as one.

    Raises:
        SoundError: It cannot be used.
    """
    _check_file(clip.path)
    try:
        with caught_noise() as noise, soundfile.SoundFile(clip.path) as file:
            rate, total = file.samplerate, file.frames
            if not _SLOWEST <= rate <= _FASTEST:
                what = f"its rate is {rate:,} samples a second, and {_SLOWEST:,} to {_FASTEST:,} can be read"
                raise SoundError(what, "Mend the header of the file, or convert it.")
            first, last = _part(clip, total, rate)
            limits.check((last - first) / rate)
            if clip.end is None:
                _check_whole(file.extra_info)
                if file.format == "MP3":
                    _check_frames(clip.path, total, rate)
            file.seek(first)
            x = file.read(last - first, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        what = f"it cannot be decoded ({error.error_string.rstrip('.')})"
        raise SoundError(what, "Convert it, for example to WAV or FLAC.") from error
    except (OSError, RuntimeError) as error:  # soundfile raises RuntimeError when a file cannot be searched
        raise SoundError(f"it cannot be read ({error})", "Check the file.") from error
    if (said := damage(noise)) is not None:
        raise SoundError(f"it is damaged ({said.rstrip('.!')})", "Make it anew from its source, or leave it out.")
    limits.check(len(x) / rate)  # a header may promise more than there is
    check_samples(x)
    is_clipped = any(_has_clipped(np.abs(channel) >= _FULL) for channel in x.T)
    return Sound(x.mean(1, dtype=np.float32), rate, is_clipped)


def read_given(clip: Clip, limits: Limits, hop: float) -> Float32[np.ndarray, "t f"]:
    """Reads features of a .npy file, a row for each frame.

    Args:
        clip: The file; start and end are in seconds too.
        limits: Shortest and longest recording.
        hop: Seconds from one frame to the next.

    Raises:
        SoundError: They cannot be used.
    """
    _check_file(clip.path)
    remedy = "Save an array of numbers with a row for each frame: numpy.save(path, array)."
    try:
        x = np.load(clip.path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SoundError(f"it is not a .npy file ({error})", remedy) from error
    if x.ndim != 2 or x.dtype.kind not in "fiu" or not x.shape[1]:
        raise SoundError(f"its array is {x.dtype} of shape {x.shape}", remedy)
    first, last = _part(clip, len(x), 1 / hop)
    limits.check((last - first) * hop)
    found = np.array(x[first:last], dtype=np.float32)
    if not np.isfinite(found).all():
        bad = int(np.flatnonzero(~np.isfinite(found).all(1))[0])
        raise SoundError(f"frame {bad + first} has a number that is not finite", "Make the features anew.")
    if (largest := float(np.abs(found).max(initial=0.0))) > _LOUDEST:
        raise SoundError(f"its array has numbers as large as {largest:.3g}", "Make the features anew.")
    return found


def check_samples(x: Float32[np.ndarray, "*shape"]) -> None:
    """Refuses samples that no microphone gives: a damaged file of floating-point numbers has such.

    Raises:
        SoundError: They are not finite, or far above full scale.
    """
    if not np.isfinite(x).all():
        raise SoundError("it has samples that are not finite", "Make it anew.")
    if (largest := float(np.abs(x).max(initial=0.0))) > _LOUDEST:
        raise SoundError(f"it has samples as large as {largest:.3g}, where full scale is 1", "Make it anew.")


def is_given(path: Path) -> bool:
    """Returns True if a file has features instead of a sound."""
    return path.suffix.lower() == GIVEN_ENDING


def split_of(path: Path, folder: Path) -> str:
    """Returns the split whose name the first folder of a path has, or ""."""
    first = path.relative_to(folder).parts[0]
    return first if first in SPLITS else ""


def _check_file(path: Path) -> None:
    if not path.is_file():
        what = "does not exist" if not path.exists() else "is a folder" if path.is_dir() else "is a device or a pipe"
        raise SoundError(f"the file {what}", "Check its name.")
    if not path.stat().st_size:
        raise SoundError("the file is empty", "Record it again, or leave it out.")


def _check_whole(said: str) -> None:
    """Refuses a file that was cut short.

    Args:
        said: What libsndfile says of the file.
    """
    found = _PROMISED.search(said)
    if found is None:
        return
    promised, there = int(found[1]), int(found[2])
    if there + 1 < promised < _UNKNOWN_SIZE:  # one byte may be padding
        what = f"it is cut short: its header promises {promised:,} bytes of sound, and {there:,} are there"
        raise SoundError(what, _COPY)


def _check_frames(path: Path, total: int, rate: int) -> None:
    """Refuses an MP3 file that was cut short, or of which the decoder would read a part.

    Args:
        path: The file.
        total: The samples that the decoder would read.
        rate: Samples a second.
    """
    found = mp3.walk(path)
    if found is None:
        return
    there = found.there * found.samples
    if found.promised is not None and found.there < found.promised:
        promised = found.promised * found.samples / rate
        what = f"it is cut short: its header promises {promised:.2f} s, and {there / rate:.2f} are there"
        raise SoundError(what, _COPY)
    if found.is_cut:
        raise SoundError("it is cut short: it ends within a frame", _COPY)
    if total < there - 4 * found.samples:  # what encoders and decoders delay is left out
        what = f"its header does not say how long it is, and {total / rate:.2f} of {there / rate:.2f} s would be read"
        raise SoundError(what, "Convert it, for example to WAV or FLAC.")


def _part(clip: Clip, total: int, rate: float) -> tuple[int, int]:
    """Returns the first of the samples of a clip, and the one after the last."""
    seconds = total / rate
    start, end = clip.start or 0.0, seconds if clip.end is None else clip.end
    if total <= 0:
        raise SoundError("the recording has no samples", "Record it again, or leave it out.")
    if start < 0 or end <= start or end > seconds + _LATE:
        what = f"the part from {start:g} to {end:g} s is not in the recording of {seconds:.3f} s"
        raise SoundError(what, "Give start and end in seconds from the beginning of the file.")
    return min(total, round(start * rate)), min(total, round(end * rate))


def _has_clipped(is_full: Bool[np.ndarray, " n"]) -> bool:
    count = len(is_full) - _CLIPPED + 1
    return count > 0 and bool(np.logical_and.reduce([is_full[n : n + count] for n in range(_CLIPPED)]).any())
