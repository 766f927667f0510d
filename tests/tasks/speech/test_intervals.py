"""Confidence intervals: the spread of a known distribution, and the same whatever the order."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from zoo.tasks.speech.bootstrap import RESAMPLES, Limit, interval, resample
from zoo.text import CER


def totals(errors: np.ndarray, size: int) -> torch.Tensor:
    parts = [resample(f"u{i}", [size - e, e, 0.0, 0.0]) for i, e in enumerate(errors.tolist())]
    return torch.stack(parts).sum(0)


def test_the_first_row_is_the_corpus_and_the_others_are_resamples() -> None:
    found = resample("a", [3.0, 1.0, 0.0, 0.0])
    assert found[0].tolist() == [3.0, 1.0, 0.0, 0.0]
    counts = found[1:, 1]
    assert len(counts) == RESAMPLES
    assert float(counts.mean()) == pytest.approx(1.0, abs=0.1)
    assert float(counts.var()) == pytest.approx(1.0, abs=0.2)
    assert torch.equal(found, resample("a", [3.0, 1.0, 0.0, 0.0]))
    assert not torch.equal(found, resample("b", [3.0, 1.0, 0.0, 0.0]))


def test_the_interval_is_that_of_the_bootstrap_of_utterances() -> None:
    draw = np.random.default_rng(0)
    errors = draw.binomial(10, 0.3, size=200).astype(float)
    low, high = interval(CER(), "cer", totals(errors, 10))
    rates = [draw.choice(errors, len(errors)).sum() / (10 * len(errors)) for _ in range(4000)]
    expected = np.quantile(rates, [0.025, 0.975])
    assert [low, high] == pytest.approx(expected.tolist(), abs=0.004)


def test_a_limit_adds_up_over_batches() -> None:
    upper, lower = Limit(CER(), "cer", upper=True), Limit(CER(), "cer", upper=False)
    errors = np.array([0.0, 1.0, 4.0, 2.0])
    for number, each in enumerate(errors.tolist()):
        for metric in (upper, lower):
            metric.update(resample(f"u{number}", [10 - each, each, 0.0, 0.0]))
    low, high = interval(CER(), "cer", totals(errors, 10))
    assert (float(lower.compute()), float(upper.compute())) == pytest.approx((low, high))
    assert 0.0 <= low <= 7 / 40 <= high


def test_nothing_has_no_interval() -> None:
    assert all(map(math.isnan, interval(CER(), "cer", torch.zeros(RESAMPLES + 1, 4))))
