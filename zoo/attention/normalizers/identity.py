"""Scores used as weights, without normalisation."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.attention_state import AttentionState
from zoo.attention.kernels.dtypes import at_least_single
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
        return support.by_row(_masked, scores)


def _masked(scores: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None) -> Float[Tensor, "... k"]:
    scores = at_least_single(scores)
    forbidden = scores == -torch.inf
    return scores.masked_fill(forbidden if permitted is None else forbidden | ~permitted, 0.0)
