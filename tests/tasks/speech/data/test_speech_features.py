"""Features of recordings against loops in float64 and torchaudio's own transforms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torchaudio

from zoo.errors import CheckpointError, ConfigError
from zoo.tasks.speech import Features
from zoo.tasks.speech.data.features import FEATURES, Normalised, Scale
from zoo.validation import ValidationError, validate


def sound(samples: int = 1234, seed: int = 0) -> np.ndarray:
    return (0.1 * np.random.default_rng(seed).standard_normal(samples)).astype(np.float32)


def mel(hertz: float) -> float:
    return 2595.0 * math.log10(1.0 + hertz / 700.0)


def slow_log_mel(samples: np.ndarray, *, rate: int, mels: int, window: int, hop: int, points: int) -> np.ndarray:
    """The definition: windows centred on frames, a discrete Fourier transform, triangles on the mel scale."""
    edges = [700.0 * (10 ** (m / 2595.0) - 1.0) for m in np.linspace(mel(20.0), mel(rate / 2), mels + 2)]
    rows = []
    for frame in range(len(samples) // hop):
        first = frame * hop - (window - hop) // 2
        powers = []
        for k in range(points // 2 + 1):
            total = 0j
            for n in range(window):
                value = float(samples[first + n]) if 0 <= first + n < len(samples) else 0.0
                hann = 0.5 - 0.5 * math.cos(2 * math.pi * n / window)
                total += (
                    value
                    * hann
                    * complex(math.cos(2 * math.pi * k * n / points), -math.sin(2 * math.pi * k * n / points))
                )
            powers.append(abs(total) ** 2)
        row = []
        for band in range(mels):
            low, middle, high = edges[band : band + 3]
            weights = [
                max(0.0, min((f - low) / (middle - low), (high - f) / (high - middle)))
                for f in (k * rate / points for k in range(points // 2 + 1))
            ]
            row.append(math.log(sum(w * p for w, p in zip(weights, powers, strict=True)) + 1e-6))
        rows.append(row)
    return np.array(rows)


def test_log_mels_are_those_of_the_definition() -> None:
    features = Features(rate=1000, mels=6, window=0.025, hop=0.01)
    x = sound(93)
    wanted = slow_log_mel(x, rate=1000, mels=6, window=25, hop=10, points=64)
    assert features.compute(x).shape == (9, 6) == wanted.shape
    np.testing.assert_allclose(features.compute(x), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rate", "mels"), [(8000, 40), (16000, 80)])
def test_log_mels_are_those_of_torchaudio(rate: int, mels: int) -> None:
    features, x = Features(rate=rate, mels=mels), sound(rate)
    window, hop = features.window_samples, features.hop_samples
    points = 2 << (window - 1).bit_length()
    transform = torchaudio.transforms.MelSpectrogram(
        sample_rate=rate, n_fft=points, win_length=window, hop_length=hop, f_min=20.0, n_mels=mels, center=False
    )
    before = features.left_padding + (points - window) // 2  # torch.stft centres the window in its points
    theirs = (transform(torch.from_numpy(np.pad(x, (before, points)))) + 1e-6).log().T[: len(x) // hop].numpy()
    np.testing.assert_allclose(features.compute(x), theirs, rtol=1e-4, atol=1e-4)
    filters = torchaudio.functional.melscale_fbanks(points // 2 + 1, 20.0, rate / 2, mels, rate)
    assert (filters.sum(0) > 0).all(), "a band is empty"


def test_coefficients_are_the_cosine_transform_of_log_mels_and_derivatives_follow() -> None:
    x = sound()
    log_mels = Features(mels=20).compute(x).astype(np.float64)
    wanted = np.zeros((len(log_mels), 13))
    for k in range(13):
        scale = math.sqrt((1 if k == 0 else 2) / 20)
        for n in range(20):
            wanted[:, k] += scale * math.cos(math.pi / 20 * (n + 0.5) * k) * log_mels[:, n]
    features = Features(kind="mfcc", mels=20, deltas=2)
    found = features.compute(x)
    assert found.shape[1] == features.width == 39
    np.testing.assert_allclose(found[:, :13], wanted, rtol=1e-4, atol=1e-4)
    for first in (0, 13):  # sum over n of n (c[t + n] - c[t - n]) / (2 sum n^2), the ends repeated
        padded = np.pad(found[:, first : first + 13].astype(np.float64), ((2, 2), (0, 0)), mode="edge")
        t = np.arange(len(found)) + 2
        slope = sum(n * (padded[t + n] - padded[t - n]) for n in (1, 2)) / 10
        np.testing.assert_allclose(found[:, first + 13 : first + 26], slope, rtol=1e-4, atol=1e-4)


def test_features_of_parts_are_those_of_the_whole() -> None:
    """What streaming needs: a frame depends on its window alone."""
    features, x = Features(), sound(2400)
    padded = np.pad(x, (features.left_padding, features.window_samples))
    whole = features.compute(x)
    for start in (0, 3, 17):
        part = padded[start * features.hop_samples : (start + 4) * features.hop_samples + features.window_samples]
        np.testing.assert_allclose(features.compute_windows(part)[:4], whole[start : start + 4], rtol=1e-5, atol=1e-5)


def test_a_tone_is_in_the_frames_of_its_time() -> None:
    features = Features()
    x = np.zeros(8000, dtype=np.float32)
    x[3200:4800] = 0.3 * np.sin(2 * np.pi * 1000 * np.arange(1600) / 8000)
    ((first, last),) = features.frames(np.array([[0.4, 0.6]]), 100)
    assert (first, last) == (40, 60)
    loudest = features.compute(x).max(1)
    assert loudest[first:last].min() > 2.0 > loudest[: first - 2].max()
    assert loudest[last + 2 :].max() < -10


@pytest.mark.parametrize("samples", [80, 81, 159, 160, 200, 1000])
def test_every_hop_of_a_recording_has_a_frame(samples: int) -> None:
    features = Features()
    assert len(features.compute(sound(samples))) == samples // 80 == features.count(samples)


def test_normalisation() -> None:
    rows = [Features().compute(sound(2000, seed)) + seed for seed in range(3)]
    one = Normalised(Features(), 40)(rows[1])
    np.testing.assert_allclose(one.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(one.std(0), 1, atol=1e-4)
    everything = np.concatenate(rows).astype(np.float64)
    over_all = Normalised(Features(normalise="global"), 40, Scale.measure(rows))
    wanted = (rows[2] - everything.mean(0)) / everything.std(0)
    np.testing.assert_allclose(over_all(rows[2]), wanted, rtol=1e-3, atol=1e-4)
    assert (Normalised(Features(normalise="none"), 40)(rows[0]) == rows[0]).all()
    silent = np.full((5, 40), -3.0, dtype=np.float32)
    assert np.isfinite(Normalised(Features(), 40)(silent)).all()


def test_the_state_is_plain_and_restores_the_same_features() -> None:
    rows = [Features().compute(sound(2000))]
    made = Normalised(Features(normalise="global", deltas=0), 40, Scale.measure(rows))
    state = made.state()
    validate(state, FEATURES, "features")
    restored = Normalised.from_state(state)
    assert restored.features == made.features
    assert (restored(rows[0]) == made(rows[0])).all()


def damaged(**changes: Any) -> dict[str, Any]:
    return {**Normalised(Features(), 40).state(), **changes}


@pytest.mark.parametrize(
    "changes",
    [{"rate": 10**9}, {"kind": "wave"}, {"window": 1e9}, {"hop": 0.0}, {"width": 0}, {"mels": True}, {"std": [0.0]}],
)
def test_a_state_of_another_form_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        validate(damaged(**changes), FEATURES, "features")


@pytest.mark.parametrize("changes", [{"width": 41}, {"mean": [0.0]}, {"normalise": "global"}, {"hop": 0.5}])
def test_a_state_that_does_not_fit_itself_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="damaged"):
        Normalised.from_state(damaged(**changes))


@pytest.mark.parametrize(
    ("options", "said"),
    [({"hop": 1e-5}, "hop"), ({"window": 0.005}, "window"), ({"kind": "mfcc", "coefficients": 41}, "coefficients")],
)
def test_options_that_have_no_meaning_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Features(**options)
