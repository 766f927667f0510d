"""Sound in parts gives the samples and features of all of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.errors import DataError
from zoo.tasks.speech import Features
from zoo.tasks.speech.data.features import Normalised, Scale
from zoo.tasks.speech.data.resampling import resample
from zoo.tasks.speech.streaming_audio import StreamingFeatures, StreamingResampler, read_audio_stream, refusal

CUTS = st.lists(st.integers(0, 3000), max_size=6)


def sound(seed: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=0.1, size=length).astype(np.float32)


def in_parts(hear: Callable[..., Any], x: np.ndarray, cuts: list[int]) -> np.ndarray:
    ends = [*sorted(min(cut, len(x)) for cut in cuts), len(x)]
    parts = [hear(x[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    return np.concatenate([*parts, hear(x[:0], last=True)])


@settings(max_examples=12, deadline=None)
@given(st.sampled_from([8000, 16000, 11025, 44100, 7000]), st.integers(1, 3000), CUTS)
def test_resampled_in_parts(rate: int, length: int, cuts: list[int]) -> None:
    x = sound(length, length)
    found = in_parts(StreamingResampler(rate, 8000).hear, x, cuts)
    np.testing.assert_allclose(found, resample(x, rate, 8000), rtol=1e-5, atol=1e-6)


@settings(max_examples=12, deadline=None)
@given(st.integers(80, 3000), CUTS, st.sampled_from([0.025, 0.01]), st.sampled_from(["log_mel", "mfcc"]))
def test_features_in_parts(length: int, cuts: list[int], window: float, kind: Any) -> None:
    features = Features(window=window, mels=13, coefficients=13, kind=kind, normalise="global")
    scale = Scale(np.linspace(-1, 1, 13, dtype=np.float32), np.linspace(1, 2, 13, dtype=np.float32))
    normalised = Normalised(features, 13, scale)
    x = sound(length, length)
    found = in_parts(StreamingFeatures(normalised).hear, x, cuts)
    np.testing.assert_allclose(found, normalised(features.compute(x)), rtol=1e-4, atol=1e-4)


def test_files_are_read_in_blocks_and_mixed_down(tmp_path: Path) -> None:
    path = tmp_path / "x.flac"
    x = sound(0, 16000).reshape(-1, 2)
    soundfile.write(path, x, 8000)
    with read_audio_stream(str(path)) as found:
        blocks = list(found.blocks)
    assert (found.rate, [len(block) for block in blocks]) == (8000, [800] * 10)
    np.testing.assert_allclose(np.concatenate(blocks), x.mean(1), atol=1e-4)


def test_what_is_no_sound_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    with pytest.raises(DataError, match=r"x\.wav: there is no such file"), read_audio_stream(str(path)):
        pass
    path.write_text("no sound")
    with (
        pytest.raises(DataError, match=r"x\.wav is no sound that can be read .* Give WAV, FLAC"),
        read_audio_stream(str(path)),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"normalise": "utterance"}, "normalise=global"), ({"deltas": 1, "normalise": "none"}, "deltas=0")],
)
def test_features_that_need_later_frames_are_refused(options: dict[str, Any], reason: str) -> None:
    assert reason in str(refusal(Normalised(Features(**options), 40)))
    assert refusal(Normalised(Features(normalise="none"), 40)) is None
