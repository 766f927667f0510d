"""Generated speech: deterministic, with sounds where the gold says that they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zoo.errors import ConfigError
from zoo.tasks.speech.data.features import Features
from zoo.tasks.speech.synthetic import RATE, Spoken, plant


def small(**options: Any) -> Spoken:
    return plant(**{"utterances": 12, "held_out": 4, **options})


def test_the_same_options_give_the_same_utterances() -> None:
    one, other = small(), small()
    assert one.texts == other.texts
    assert one.snrs == other.snrs
    assert (one.samples(3) == other.samples(3)).all()
    assert one.texts != small(seed=1).texts
    assert one.texts == small(utterances=8, held_out=6).texts, "an utterance depends on its number alone"


def test_texts_have_the_letters_and_lengths_that_were_asked_for() -> None:
    spoken = small(utterances=60, letters=5, shortest=3, longest=7)
    assert {len(text.replace(" ", "")) for text in spoken.texts} == {3, 4, 5, 6, 7}
    assert set("".join(spoken.texts)) == set("abcde ")
    assert (np.bincount(spoken.splits) == [60, 4, 4]).all()


def test_times_follow_each_other_and_spaces_have_none() -> None:
    spoken = small()
    for number, (text, times) in enumerate(zip(spoken.texts, spoken.times, strict=True)):
        lengths = times[:, 1] - times[:, 0]
        assert (times[1:, 0] >= times[:-1, 1]).all()
        assert [letter == " " for letter in text] == (lengths == 0).tolist()
        assert lengths[lengths > 0].min() > 0.05
        assert times[-1, 1] < len(spoken.samples(number)) / RATE


def test_letters_sound_where_they_are_said_to() -> None:
    """Almost without noise, the frames of letters are loud, and each letter's two formants are the loudest."""
    spoken = small(bursts=0.0, loud=60.0, quiet=60.0, letters=26, longest=10)
    features = Features(mels=64)
    for number in range(8):
        x = features.compute(spoken.samples(number))
        is_loud = np.zeros(len(x), dtype=bool)
        for start, end in features.frames(spoken.times[number], len(x)):
            is_loud[start:end] = True
        level = x.max(1)
        assert np.median(level[is_loud]) > np.median(level[~is_loud]) + 5


def test_letters_differ_and_keep_their_sound() -> None:
    """A letter is nearest to itself in other utterances, whatever the voice."""
    spoken, features = small(utterances=60, bursts=0.0, loud=40.0, quiet=40.0), Features()
    means: dict[str, list[np.ndarray]] = {}
    for number, text in enumerate(spoken.texts):
        x = features.compute(spoken.samples(number))
        for letter, (start, end) in zip(text, features.frames(spoken.times[number], len(x)), strict=True):
            if letter != " ":
                middle = x[start + 2 : end - 2].mean(0)
                means.setdefault(letter, []).append(middle - middle.mean())
    letters = sorted(means)
    centres = np.stack([np.mean(means[letter][::2], 0) for letter in letters])
    right = [
        letters[int(((centres - each) ** 2).sum(1).argmin())] == letter
        for letter in letters
        for each in means[letter][1::2]
    ]
    assert np.mean(right) > 0.9


def test_noise_has_the_ratio_that_is_said() -> None:
    quiet, noisy = small(loud=50.0, quiet=50.0, bursts=0.0), small(loud=0.0, quiet=0.0, bursts=0.0)
    assert set(quiet.snrs) == {50.0}
    for number in range(4):
        first, last = quiet.times[number][0, 0], quiet.times[number][-1, 1]
        power = {}
        for name, spoken in (("quiet", quiet), ("noisy", noisy)):
            samples = spoken.samples(number).astype(np.float64)
            silence = samples[: int(first * RATE)]
            spoken_part = samples[int(first * RATE) : int(last * RATE)]
            power[name] = (spoken_part**2).mean() / (silence**2).mean()
        assert power["quiet"] > 1000 > 10 > power["noisy"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shortest": 9, "longest": 4}, "shortest"),
        ({"loud": 9.0, "quiet": 4.0}, "loud"),
        ({"utterances": 10**9}, "most"),
    ],
)
def test_options_that_have_no_meaning_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plant(**options)
