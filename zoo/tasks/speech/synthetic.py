"""Generated speech: letters as sounds with formants, so that it is known which frames spell each letter.

Every letter has two formants of its own. They swell with the pulses of a voice, whose pitch and size differ between
utterances and which glides up or down. Letters have different lengths, and voices different speeds. Words are separated
by silence, in which there may be a burst of noise, as long and as loud as a letter. Letters are drawn at random, so
that none can be guessed from its neighbours, and noise covers all of an utterance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Float32, Float64, Int

from zoo.data.size_limits import check_numbers
from zoo.data.splits import TEST, TRAIN, VAL
from zoo.errors import ConfigError
from zoo.types import Fraction, PositiveInt, Seed, validate_ranges

RATE = 8000
"""Samples per second."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_FIRST = (290, 390, 530, 720, 980)
_SECOND = (1250, 1530, 1880, 2310, 2830, 3470)
"""Formants in Hz: the letter n has the n-th of each, counted around, which are pairs of their own up to 30."""
_LONGEST_WORD = 5
_LETTER = (0.07, 0.14)
"""Shortest and longest duration of a letter in seconds, at normal speed."""
_GAP = (0.1, 0.3)
_EDGE = (0.05, 0.4)
"""Silence between words, and before the first and after the last."""
_SPEED = (0.8, 1.25)
_PITCH = (90.0, 230.0)
_GLIDE = 0.2
"""The pitch changes by up to this share from the beginning to the end."""
_SIZE = (0.94, 1.06)
"""Factor of all formants of a voice."""
_RAMP = 0.012
"""Seconds in which a sound swells, and fades."""


@dataclass(frozen=True, eq=False)
class Spoken:
    """Generated utterances.

    Args:
        texts: What is said: words between spaces.
        times: For each letter of each text, its begin and end in seconds, equal for spaces.
        snrs: Signal-to-noise ratio of each utterance in dB.
        splits: `TRAIN`, `VAL` or `TEST` of `zoo.data.splits`.
        seed: Seed of the sounds.
    """

    texts: list[str]
    times: list[Float64[np.ndarray, "c 2"]]
    snrs: list[float]
    splits: Int[np.ndarray, " n"]
    scripts: list[_Script]
    seed: int

    def samples(self, number: int) -> Float32[np.ndarray, " n"]:
        """Returns the sound of an utterance, always the same."""
        return _sound(self.scripts[number], self.snrs[number], np.random.default_rng([self.seed, number, 1]))


@validate_ranges
def plant(
    *,
    utterances: PositiveInt = 2000,
    held_out: PositiveInt = 200,
    letters: Annotated[int, ">= 2", "<= 26"] = 12,
    shortest: PositiveInt = 4,
    longest: Annotated[int, ">= 1", "<= 200"] = 14,
    bursts: Fraction = 0.5,
    quiet: Annotated[float, "any"] = 30.0,
    loud: Annotated[float, "any"] = 5.0,
    seed: Seed = 0,
) -> Spoken:
    """Generates utterances; the same arguments give the same ones.

    Args:
        utterances: Number of training utterances.
        held_out: Number of utterances of the validation split, and of the test split.
        letters: Number of letters of the alphabet.
        shortest: The fewest letters of an utterance, without spaces.
        longest: The most letters. All numbers of letters are equally frequent.
        bursts: Share of the silences that have a burst of noise.
        quiet: Signal-to-noise ratio of the quietest noise in dB; all up to this are equally frequent.
        loud: Likewise of the loudest noise.
        seed: Seed of the generator.
    """
    if shortest > longest:
        raise ConfigError(f"data.shortest={shortest} is more than data.longest={longest}")
    if loud > quiet:
        raise ConfigError(f"data.loud={loud} and quiet={quiet}: the loudest noise has the lower ratio, in dB")
    total = utterances + 2 * held_out
    seconds = longest * _LETTER[1] / _SPEED[0] + (longest // 2) * _GAP[1] + 2 * _EDGE[1]
    check_numbers(
        round(total * seconds * RATE), f"data.utterances={utterances}, held_out={held_out}, longest={longest}"
    )
    texts, times, snrs, scripts = list[str](), [], list[float](), []
    for number in range(total):
        draw = np.random.default_rng([seed, number, 0])
        text = _text(draw, int(draw.integers(shortest, longest + 1)), letters)
        script = _Script.draw(draw, text, bursts)
        texts.append(text)
        times.append(script.times(text))
        snrs.append(float(draw.uniform(loud, quiet)))
        scripts.append(script)
    return Spoken(texts, times, snrs, np.repeat([TRAIN, VAL, TEST], [utterances, held_out, held_out]), scripts, seed)


@dataclass(frozen=True, eq=False)
class _Script:
    """What sounds when: the sounds of an utterance, one after another.

    Args:
        sounds: Number of the letter of each sound, `_SILENCE` or `_BURST`.
        samples: Number of samples of each sound.
        pitch: Pitch of the voice in Hz, at the beginning and at the end.
        size: Factor of the formants.
    """

    sounds: Int[np.ndarray, " k"]
    samples: Int[np.ndarray, " k"]
    pitch: tuple[float, float]
    size: float

    @classmethod
    def draw(cls, draw: np.random.Generator, text: str, bursts: float) -> _Script:
        sounds, seconds = list[int](), list[float]()
        speed = draw.uniform(*_SPEED)

        def silence(shortest: float, longest: float) -> None:
            length = draw.uniform(shortest, longest)
            if draw.random() < bursts:
                burst = draw.uniform(*_LETTER) / speed
                before = draw.random() * length
                sounds.extend((_SILENCE, _BURST, _SILENCE))
                seconds.extend((before + _LEAST, burst, length - before + _LEAST))
            else:
                sounds.append(_SILENCE)
                seconds.append(length)

        silence(*_EDGE)
        for letter in text:
            if letter == " ":
                silence(*_GAP)
            else:
                sounds.append(LETTERS.index(letter))
                seconds.append(draw.uniform(*_LETTER) / speed)
        silence(*_EDGE)
        pitch = draw.uniform(*_PITCH)
        glide = draw.uniform(1 - _GLIDE, 1 + _GLIDE)
        samples = np.rint(np.array(seconds) * RATE).astype(np.int64)
        return cls(np.array(sounds), samples, (pitch, pitch * glide), draw.uniform(*_SIZE))

    def times(self, text: str) -> Float64[np.ndarray, "c 2"]:
        """Returns begin and end of each letter; a space begins and ends where the letter before it ends."""
        ends = self.samples.cumsum()
        of_letters = np.stack([ends - self.samples, ends], 1)[self.sounds >= 0] / RATE
        found, next_letter = np.zeros((len(text), 2)), 0
        for place, letter in enumerate(text):
            if letter == " ":
                found[place] = found[place - 1, 1]
            else:
                found[place] = of_letters[next_letter]
                next_letter += 1
        return found


_SILENCE, _BURST = -1, -2
_LEAST = 0.02
"""Seconds of silence on each side of a burst, at least."""


def _text(draw: np.random.Generator, count: int, letters: int) -> str:
    """Returns words of so many random letters."""
    words, left = [], count
    while left:
        size = min(left, int(draw.integers(2, _LONGEST_WORD + 1)))
        words.append("".join(LETTERS[number] for number in draw.integers(0, letters, size)))
        left -= size
    return " ".join(words)


def _sound(script: _Script, snr: float, draw: np.random.Generator) -> Float32[np.ndarray, " n"]:
    """Returns the samples of an utterance: two formants that swell with the pulses of a voice, bursts, and noise."""
    sounds, total = np.repeat(script.sounds, script.samples), int(script.samples.sum())
    is_letter = sounds >= 0
    pitch = np.linspace(*script.pitch, total)
    pulses = (0.5 + 0.5 * np.cos(_phase(pitch))) ** 2
    tones = np.zeros(total)
    for formants, loudness in ((_FIRST, 0.6), (_SECOND, 0.4)):
        of_sounds = np.array(formants)[script.sounds % len(formants)] * script.size
        tones += loudness * np.sin(_phase(np.repeat(of_sounds, script.samples)))
    wave = np.where(is_letter, tones * pulses, 0.0)
    noise = draw.standard_normal(total)
    level = np.sqrt((wave**2).sum() / max(1, is_letter.sum()))
    wave += np.where(sounds == _BURST, level * noise, 0.0)
    wave *= _make_envelope(script.samples)
    wave += level * 10 ** (-snr / 20) * draw.standard_normal(total)
    return np.asarray(0.5 * wave / np.abs(wave).max(), dtype=np.float32)


def _phase(frequencies: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    return 2 * np.pi * np.cumsum(frequencies) / RATE


def _make_envelope(samples: Int[np.ndarray, " k"]) -> Float64[np.ndarray, " n"]:
    """Returns the loudness within each sound: it swells at its begin, and fades at its end."""
    ends = samples.cumsum()
    places = np.arange(ends[-1]) - np.repeat(ends - samples, samples)
    nearest = np.minimum(places, np.repeat(samples, samples) - 1 - places)
    return np.asarray(np.sin(0.5 * np.pi * np.minimum(1.0, (nearest + 0.5) / (_RAMP * RATE))))
