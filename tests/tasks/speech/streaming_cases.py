"""Attention that stops here and there without training."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from zoo.attention import AttentionFactory, Monotonic, MonotonicChunkwise, ScaledDot, Score, ScorePair


class Waves(Score):
    """A score that changes its sign with every query and key, so that queries without training stop here and there."""

    def forward(self, query: Tensor, key: Tensor, support: Any, state: Any = None) -> Tensor:
        return 4 * (9 * (query.sum(-1).unsqueeze(-1) + key.sum(-1).unsqueeze(-2))).sin()


MONOTONIC = AttentionFactory(score=Waves, normalizer=Monotonic)
MOCHA = AttentionFactory(
    score=partial(ScorePair, monotonic=Waves, chunk=ScaledDot), normalizer=partial(MonotonicChunkwise, chunk=3)
)
