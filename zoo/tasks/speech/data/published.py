"""FSDD, strings of its digits, LibriSpeech and Speech Commands, as they were published."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int

from zoo.data.download import find_published, verify_published
from zoo.data.size_limits import check_numbers
from zoo.data.splits import NONE, SPLITS, TEST, TRAIN, VAL
from zoo.data.tarballs import extract_folder
from zoo.errors import ConfigError, DataError, did_you_mean, warn
from zoo.tasks.speech.data.audio import Clip, Limits, SoundError, read_sound
from zoo.tasks.speech.data.corpus import Corpus, GeneratedSounds
from zoo.tasks.speech.data.features import Features
from zoo.tasks.speech.data.recordings import FileSounds
from zoo.tasks.speech.data.resampling import resample

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_FSDD_AT = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/heads"
_TAKE = re.compile(r"(\d)_([a-z]+)_(\d+)\.wav")
_TEST_TAKES, _VAL_TAKES = 5, 10
"""Takes 0-4 are the published test set; 5-9 are held out of the others for validation."""
_STRING_RATE = 8000
_LIBRISPEECH_AT = "https://www.openslr.org/resources/12"
_LIBRISPEECH = {  # as torchaudio has them
    "dev-clean.tar.gz": "76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3",
    "dev-other.tar.gz": "12661c48e8c3fe1de2c1caa4c3e135193bfb1811584f11f569dd12645aa84365",
    "test-clean.tar.gz": "39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23",
    "test-other.tar.gz": "d09c181bba5cf717b3dee7d4d592af11a3ee3a09e08ae025c5506f6ebe961c29",
    "train-clean-100.tar.gz": "d4ddd1d5a6ab303066f14971d768ee43278a5f2a0aa43dc716b0e64ecbbbf6e2",
    "train-clean-360.tar.gz": "146a56496217e96c14334a160df97fffedd6e0a04e66b9c5af0d40be3c792ecf",
    "train-other-500.tar.gz": "ddb22f27f96ec163645d53215559df6aa36515f26e01dd70798188350adcb6d2",
}
LIBRISPEECH_PARTS = tuple(name.removesuffix(".tar.gz") for name in _LIBRISPEECH)
_COMMANDS_AT = "http://download.tensorflow.org/data"
_COMMANDS = "speech_commands_v0.02"
_COMMANDS_SHA256 = "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58"
_ANY_LENGTH = Limits(0.0, 120.0)


class Take(NamedTuple):
    """A recording of FSDD."""

    path: Path
    digit: int
    speaker: str
    split: int


def find_takes(folders: Sequence[Path]) -> list[Take]:
    """Returns the recordings of fsdd/recordings: DIGIT_SPEAKER_TAKE.wav."""
    places = [folder / "fsdd" for folder in folders]
    place = next((each / "recordings" for each in places if (each / "recordings").is_dir()), None)
    if place is None:
        archive = find_published(["master.tar.gz"], places, source=_FSDD_AT)[0]["master.tar.gz"]
        inside = "free-spoken-digit-dataset-master/recordings"
        place = extract_folder(archive, inside, places[-1] / "recordings")
    takes = []
    for path in sorted(place.glob("*.wav")):
        name = _TAKE.fullmatch(path.name)
        if name is None:
            raise DataError(f"{path}: this is no file of FSDD, whose names are DIGIT_SPEAKER_TAKE.wav. Remove it.")
        take = int(name[3])
        split = TEST if take < _TEST_TAKES else VAL if take < _VAL_TAKES else TRAIN
        takes.append(Take(path, int(name[1]), name[2], split))
    for number, name_of_split in enumerate(SPLITS):
        digits = {each.digit for each in takes if each.split == number}
        if len(digits) < len(DIGITS):
            raise DataError(
                f"{place}: {len(digits)} of 10 digits have a recording for {name_of_split}. Fetch FSDD anew."
            )
    return takes


def read_fsdd(folders: Sequence[Path], cache: Path | None, left_out: str | None, features: Features) -> Corpus:
    """Single digits, each a word."""
    takes = _leave_out(find_takes(folders), left_out)
    return Corpus(
        sounds=_sounds([Clip(take.path) for take in takes], cache, features),
        texts=[DIGITS[take.digit] for take in takes],
        ids=[take.path.stem for take in takes],
        splits=np.array([take.split for take in takes]),
        speakers=[take.speaker for take in takes],
    )


@dataclass(frozen=True, kw_only=True)
class Strings:
    """How digits are joined.

    Args:
        strings: Number of training strings.
        held_out: Number of strings of the validation split, and of the test split.
        fewest: The fewest digits of a string.
        most: The most digits; all numbers are equally frequent.
        shortest_pause: Seconds between two digits, and before the first and after the last, at least.
        longest_pause: Likewise, at most.
        snr: Ratio in dB of the digits to the noise that covers a string, also in its pauses.
        left_out: A speaker of whom the test split is alone, and the others have nothing; None: all are in all splits.
        seed: Seed of the strings.
    """

    strings: int
    held_out: int
    fewest: int
    most: int
    shortest_pause: float
    longest_pause: float
    snr: float
    left_out: str | None
    seed: int

    def __post_init__(self) -> None:
        for low, high in (("fewest", "most"), ("shortest_pause", "longest_pause")):
            if getattr(self, low) > getattr(self, high):
                raise ConfigError(f"data.{low}={getattr(self, low)} is more than data.{high}={getattr(self, high)}")

    def expected_seconds(self, digit: float) -> float:
        """Returns the seconds of all strings together, given the mean of a digit."""
        digits, pause = (self.fewest + self.most) / 2, (self.shortest_pause + self.longest_pause) / 2
        return (self.strings + 2 * self.held_out) * (digits * digit + (digits + 1) * pause)


def read_fsdd_strings(folders: Sequence[Path], strings: Strings, features: Features) -> Corpus:
    """Strings of digits, each of one speaker, whose takes are of one split."""
    takes = _leave_out(find_takes(folders), strings.left_out)
    sounds = [_samples(take.path) for take in takes]
    seconds = strings.expected_seconds(float(np.mean([len(each) for each in sounds])) / _STRING_RATE)
    options = f"data.strings={strings.strings}, held_out={strings.held_out}, most={strings.most}"
    check_numbers(round(seconds / features.hop * (features.width or 1)), options)
    drawn = []
    for split, count in enumerate((strings.strings, strings.held_out, strings.held_out)):
        own = _group_by_speaker(takes, split)
        drawn += [_String.draw(strings, split, number, own) for number in range(count)]

    at_speeds = {1.0: sounds}

    def make(number: int, features: Features, speed: float) -> Float32[np.ndarray, " n"]:
        if speed not in at_speeds:  # of takes, which are many times shorter than all strings together
            at_speeds[speed] = [resample(each, _STRING_RATE, _STRING_RATE, speed) for each in sounds]
        return resample(drawn[number].samples(strings, at_speeds[speed], speed), _STRING_RATE, features.rate)

    texts = [" ".join(DIGITS[takes[take].digit] for take in each.takes) for each in drawn]
    return Corpus(
        sounds=GeneratedSounds(make, len(drawn)),
        texts=texts,
        ids=[f"{SPLITS[each.split]} {each.number + 1}" for each in drawn],
        splits=np.array([each.split for each in drawn]),
        speakers=[takes[each.takes[0]].speaker for each in drawn],
        snrs=[strings.snr] * len(drawn),
        times=[_times(text, each, sounds) for text, each in zip(texts, drawn, strict=True)],
    )


@dataclass(frozen=True, eq=False)
class _String:
    """A string of digits: numbers of its takes, and the samples of the pauses before each and after the last."""

    split: int
    number: int
    takes: Int[np.ndarray, " k"]
    pauses: Int[np.ndarray, " k+1"]

    @classmethod
    def draw(
        cls,
        strings: Strings,
        split: int,
        number: int,
        takes: dict[str, list[Int[np.ndarray, " _"]]],
    ) -> _String:
        draw = np.random.default_rng([strings.seed, split, number, 0])
        of_speaker = takes[sorted(takes)[int(draw.integers(len(takes)))]]
        count = int(draw.integers(strings.fewest, strings.most + 1))
        chosen = [int(draw.choice(of_speaker[digit])) for digit in draw.integers(0, len(DIGITS), count)]
        seconds = draw.uniform(strings.shortest_pause, strings.longest_pause, count + 1)
        return cls(split, number, np.array(chosen), np.rint(seconds * _STRING_RATE).astype(np.int64))

    def samples(
        self, strings: Strings, sounds: Sequence[Float32[np.ndarray, " _"]], speed: float
    ) -> Float32[np.ndarray, " n"]:
        """Joins takes that have a speed; pauses get it here, and noise has none."""
        draw = np.random.default_rng([strings.seed, self.split, self.number, 1])
        first, *pauses = np.rint(self.pauses / speed).astype(np.int64).tolist()
        parts = [np.zeros(first, dtype=np.float32)]
        for take, pause in zip(self.takes.tolist(), pauses, strict=True):
            parts += [sounds[take], np.zeros(pause, dtype=np.float32)]
        wave = np.concatenate(parts)
        power = np.mean([np.square(sounds[take], dtype=np.float64).mean() for take in self.takes.tolist()])
        noise = draw.standard_normal(len(wave)) * np.sqrt(power) * 10 ** (-strings.snr / 20)
        return np.asarray(wave + noise, dtype=np.float32)


def _times(text: str, string: _String, sounds: Sequence[Float32[np.ndarray, " _"]]) -> Float64[np.ndarray, "c 2"]:
    """Returns begin and end of each letter: those of its digit; a space has none."""
    lengths = np.array([len(sounds[take]) for take in string.takes.tolist()])
    ends = (string.pauses[:-1] + lengths).cumsum()
    of_digits = np.stack([ends - lengths, ends], 1) / _STRING_RATE
    found, digit = [], 0
    for letter in text:
        if letter == " ":
            found.append([of_digits[digit, 1]] * 2)
            digit += 1
        else:
            found.append(of_digits[digit].tolist())
    return np.array(found)


def read_librispeech(
    folders: Sequence[Path], cache: Path | None, parts: Sequence[str], limits: Limits, features: Features
) -> Corpus:
    """LibriSpeech/PART/SPEAKER/CHAPTER/*.flac with transcripts in SPEAKER-CHAPTER.trans.txt.

    Args:
        folders: Folders of data sets; archives are unpacked into the last.
        cache: Folder of derived files.
        parts: The parts for training, validation and test, several joined by "+".
        limits: Training recordings outside of these are left out, and counted.
        features: What is made of the recordings.
    """
    clips, texts, ids, splits, speakers = list[Clip](), list[str](), list[str](), list[int](), list[str]()
    for number, names in enumerate(parts):
        for name in names.split("+"):
            if name not in LIBRISPEECH_PARTS:
                raise ConfigError(
                    f"data.{SPLITS[number]}={names}: no part is {name!r}. {did_you_mean(name, LIBRISPEECH_PARTS)}"
                )
            place = _part_of_librispeech(folders, name)
            before = len(clips)
            for transcript in sorted(place.glob("*/*/*.trans.txt")):
                for line, row in enumerate(transcript.read_text(encoding="utf-8").splitlines(), start=1):
                    id, _, text = row.partition(" ")
                    path = transcript.parent / f"{id}.flac"
                    verify_published(bool(text.strip()), transcript, f"line {line} has no transcript")
                    verify_published(path.is_file(), transcript, f"line {line} names {id}, and there is no {path.name}")
                    clips.append(Clip(path))
                    texts.append(text.strip())
                    ids.append(id)
                    splits.append(number)
                    speakers.append(id.partition("-")[0])
            verify_published(len(clips) > before, place, "it has no transcript SPEAKER/CHAPTER/*.trans.txt")
    sounds = _sounds(clips, cache, features)
    rows = sounds.features(features)
    seconds = np.array([len(each) for each in rows]) * features.hop
    is_out = (np.array(splits) == TRAIN) & ((seconds < limits.shortest) | (seconds > limits.longest))
    if is_out.any():
        warn(f"{int(is_out.sum()):,} training recordings are not of {limits.shortest:g} to {limits.longest:g} s.")
    return Corpus(sounds, texts, ids, np.where(is_out, NONE, splits), speakers)


def read_speech_commands(folders: Sequence[Path], cache: Path | None, features: Features) -> Corpus:
    """speech_commands_v0.02/WORD/SPEAKER_nohash_TAKE.wav, with validation_list.txt and testing_list.txt."""
    found = [folder / name for folder in folders for name in (_COMMANDS, f"SpeechCommands/{_COMMANDS}")]
    place = next((each for each in found if each.is_dir()), None)
    if place is None:
        name = f"{_COMMANDS}.tar.gz"
        archive = find_published([name], folders, source=_COMMANDS_AT, sha256={name: _COMMANDS_SHA256})[0][name]
        place = extract_folder(archive, ".", folders[-1] / _COMMANDS)
    held_out: dict[str, int] = {}
    for name, split in (("validation_list.txt", VAL), ("testing_list.txt", TEST)):
        file = place / name
        if not file.is_file():
            raise DataError(f"{file}: the list is missing. Fetch {_COMMANDS} anew.")
        held_out |= {line.strip(): split for line in file.read_text(encoding="utf-8").splitlines() if line.strip()}
    paths = sorted(path for path in place.glob("*/*_nohash_*.wav") if not path.parent.name.startswith("_"))
    names = [f"{path.parent.name}/{path.name}" for path in paths]
    missing = sorted(held_out.keys() - set(names))
    if missing:
        raise DataError(
            f"{place}: {len(missing):,} listed recordings are missing, such as {missing[0]}. Fetch it anew."
        )
    if len(names) == len(held_out):
        raise DataError(f"{place}: there is no recording for training. Fetch {_COMMANDS} anew.")
    return Corpus(
        sounds=_sounds([Clip(path) for path in paths], cache, features),
        texts=[path.parent.name for path in paths],
        ids=names,
        splits=np.array([held_out.get(name, TRAIN) for name in names]),
        speakers=[path.name.partition("_")[0] for path in paths],
    )


def _part_of_librispeech(folders: Sequence[Path], name: str) -> Path:
    places = [folder / "LibriSpeech" / name for folder in folders]
    found = next((place for place in places if place.is_dir()), None)
    if found is not None:
        return found
    archive = f"{name}.tar.gz"
    path = find_published([archive], folders, source=_LIBRISPEECH_AT, sha256=_LIBRISPEECH)[0][archive]
    return extract_folder(path, f"LibriSpeech/{name}", places[-1])


def _sounds(clips: Sequence[Clip], cache: Path | None, features: Features) -> FileSounds:
    """Returns published recordings, all of which can be read."""
    sounds = FileSounds(clips, _ANY_LENGTH, cache)
    for number, rows in enumerate(sounds.features(features)):
        fault = None if len(rows) else sounds.fault(number, features)
        if fault is not None:
            raise DataError(f"{clips[number].path}: {fault.what}. Remove it, and fetch the data set anew.")
    return sounds


def _samples(path: Path) -> Float32[np.ndarray, " n"]:
    try:
        sound = read_sound(Clip(path), _ANY_LENGTH)
    except SoundError as error:
        raise DataError(f"{path}: {error.fault.what}. Remove it, and fetch the data set anew.") from error
    return resample(sound.samples, sound.rate, _STRING_RATE)


def _leave_out(takes: Sequence[Take], left_out: str | None) -> list[Take]:
    """Returns the takes of a run: if a speaker is left out, the test has his alone, and the other splits none."""
    if left_out is None:
        return list(takes)
    speakers = {take.speaker for take in takes}
    if left_out not in speakers:
        raise ConfigError(f"data.left_out={left_out}: {did_you_mean(left_out, speakers)}")
    return [take for take in takes if (take.speaker == left_out) == (take.split == TEST)]


def _group_by_speaker(takes: Sequence[Take], split: int) -> dict[str, list[Int[np.ndarray, " _"]]]:
    """Returns, for each speaker with every digit in a split, the numbers of the takes of each digit."""
    found: dict[str, list[list[int]]] = {}
    for number, take in enumerate(takes):
        if take.split == split:
            found.setdefault(take.speaker, [[] for _ in DIGITS])[take.digit].append(number)
    whole = {name: [np.array(each) for each in digits] for name, digits in found.items() if all(digits)}
    if not whole:
        raise DataError(f"{takes[0].path.parent}: no speaker has every digit for {SPLITS[split]}. Fetch FSDD anew.")
    return whole
