"""Normalizers that give every permitted key a positive weight.

A normalizer is a module `(scores, support, state) -> weights`. It computes the weights w_i of each query i over the
keys that the support permits: `support.softmax(s)` is `masked_softmax` of each row, in supports/support.py.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.attention.attention_state import AttentionState
from zoo.attention.kernels.dtypes import accumulation_dtype, upcast
from zoo.attention.mechanism import Normalizer, Traits, Use
from zoo.attention.supports.edges import EdgeSupport
from zoo.attention.supports.support import Support
from zoo.types import PositiveFloat, validate_ranges


@validate_ranges
class Softmax(Normalizer):
    """exp(s_j / T) / sum_k exp(s_k / T), over the permitted keys (Hinton et al. 2015, eq. 1, for T).

    A score of -inf has weight zero. A score of +inf or NaN makes its own row NaN, and no other.

    Cost: O(pairs)

    Args:
        temperature: T; weights are sharper below 1 and flatter above 1.
    """

    def __init__(self, *, temperature: PositiveFloat = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        # w_ij = exp(s_ij / T) / sum_k exp(s_ik / T)
        if self.temperature != 1.0:
            scores = upcast(scores) / self.temperature
        return support.softmax(scores)


class SmoothedSigmoid(Normalizer):
    """σ(s_j) / sum_k σ(s_k), over the permitted keys (Chorowski et al. 2015, section 2.3, smoothing).

    The sigmoid is bounded, so several keys can have similar weights. For very negative scores the result is that of
    softmax, because σ(s) approaches exp(s).

    Cost: O(pairs)
    """

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        # w_ij = σ(s_ij) / sum_k σ(s_ik)
        # logarithms, because the sum of sigmoids would underflow if all scores are very negative
        return support.softmax(F.logsigmoid(upcast(scores)))


class Uniform(Normalizer):
    """1 / (number of permitted keys): the control without attention.

    Cost: O(pairs)
    """

    traits = Traits(content_based=False)

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        # the softmax of equal scores
        return support.softmax(torch.zeros_like(scores))


class Degree(Normalizer):
    """1 / sqrt(d_i d_j): the fixed weights of GCN (Kipf & Welling 2017, eq. 2); rows need not sum to one.

    Cost: O(pairs)
    """

    traits = Traits(
        layouts=(EdgeSupport,),
        content_based=False,
        unsupported={Use.CROSS: "works on the edges of one graph, whose nodes are queries and keys"},
    )

    def forward(
        self, scores: Float[Tensor, "e h"], support: EdgeSupport, state: AttentionState | None = None
    ) -> Float[Tensor, "e h"]:
        if support.key_degrees is None:
            raise ValueError("Degree needs the degrees of sources: edges of one graph, or EdgeSupport.key_degrees")
        # w_ij = 1 / sqrt(d_i d_j). Kipf & Welling's graphs are undirected, so d_j is the degree of j as a target.
        at_target, at_source = (
            d.clamp(min=1).to(accumulation_dtype(scores)).rsqrt() for d in (support.degrees, support.key_degrees)
        )
        weights = at_target.index_select(0, support.target) * at_source.index_select(0, support.source)
        return weights.unsqueeze(-1).expand(-1, scores.shape[1])
