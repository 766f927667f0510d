"""Scores used as weights, without normalization."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.attention_state import AttentionState
from zoo.attention.kernels.dtypes import upcast
from zoo.attention.mechanism import Normalizer
from zoo.attention.supports.support import Support


class Unnormalized(Normalizer):
    """The scores themselves, zero at forbidden pairs and where a bias makes them -inf (Zhou et al. 2018, section 4.3).

    Rows need not sum to one, so the context keeps the total intensity of the scores.

    Cost: O(n m)
    """

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        return support.apply_per_query(_zero_masked, scores)


def _zero_masked(scores: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None) -> Float[Tensor, "... k"]:
    scores = upcast(scores)
    forbidden = scores == -torch.inf
    return scores.masked_fill(forbidden if permitted is None else forbidden | ~permitted, 0.0)
