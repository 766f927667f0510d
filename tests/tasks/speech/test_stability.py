"""Monotonic attention stays finite through 5,000 steps of mixed precision."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from recogniser_cases import batch, recogniser

from zoo.attention import (
    Additive,
    AttentionFactory,
    Monotonic,
    MonotonicChunkwise,
    NormalizedAdditive,
    ScorePair,
)

ATTENTION = {
    "monotonic": AttentionFactory(score=NormalizedAdditive, normalizer=partial(Monotonic, noise=2.0)),
    "mocha": AttentionFactory(
        score=partial(ScorePair, monotonic=NormalizedAdditive, chunk=Additive),
        normalizer=partial(MonotonicChunkwise, chunk=3, noise=2.0),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTION)
def test_five_thousand_steps_stay_finite(name: str) -> None:
    """At a high rate, which drives stops to certainty: p is 0 or 1 in bfloat16, and gates are saturated."""
    module, made = recogniser(attend=ATTENTION[name]).float().train(), batch()
    object.__setattr__(made.source, "rows", made.source.rows.float())
    module.log = lambda *_, **__: None  # type: ignore[method-assign, assignment]
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    losses = []
    for _ in range(5000):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = module.training_step(made, 0)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        losses.append(loss.detach())
    found = torch.stack(losses)
    assert found.isfinite().all()
    assert all(parameter.isfinite().all() for parameter in module.parameters())
    assert found[-100:].mean() < 0.7 * found[:10].mean()
