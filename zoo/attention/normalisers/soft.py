"""From scores to weights: how each query spends its attention among the keys that its support permits."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.kernels.precision import at_least_single, wide
from zoo.attention.ranges import Positive
from zoo.attention.state import AttentionState
from zoo.attention.supports.edges import EdgeSupport
from zoo.attention.supports.support import Support


class Softmax(nn.Module):
    """exp(s_j / T) / sum_k exp(s_k / T), over the permitted keys (Hinton et al. 2015, eq. 1, for T).

    A score of -inf weighs nothing; +inf and NaN make their row NaN, and no other.

    Cost: O(pairs)

    Args:
        temperature: T; below 1 sharper, above 1 flatter.
    """

    def __init__(self, *, temperature: Positive = 1.0) -> None:
        super().__init__()
        if not temperature > 0.0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        self.temperature = temperature

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        if self.temperature != 1.0:
            scores = at_least_single(scores) / self.temperature
        return support.softmax(scores)


class SmoothedSigmoid(nn.Module):
    """σ(s_j) / sum_k σ(s_k), over the permitted keys (Chorowski et al. 2015, section 2.3, smoothing).

    The sigmoid is bounded: no key wins alone, and many may share. Where all scores are very negative the weights are
    those of softmax, to which the sigmoid then comes down.

    Cost: O(pairs)
    """

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        # in logarithms: where all scores are very negative a sum of sigmoids would be 0
        return support.softmax(F.logsigmoid(at_least_single(scores)))


class Uniform(nn.Module):
    """1 / (number of permitted keys): the control without attention.

    Cost: O(pairs)
    """

    reads_scores = False

    def forward(
        self, scores: Float[Tensor, "..."], support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        return support.softmax(torch.zeros_like(scores))


class Degree(nn.Module):
    """1 / sqrt(d_i d_j): the fixed weights of GCN (Kipf & Welling 2017, eq. 2); rows need not sum to one.

    Cost: O(pairs)
    """

    supports = (EdgeSupport,)
    reads_scores = False
    needs_one_graph = True

    def forward(
        self, scores: Float[Tensor, "e h"], support: EdgeSupport, state: AttentionState | None = None
    ) -> Float[Tensor, "e h"]:
        if support.key_degrees is None:
            raise ValueError("Degree needs the degrees of sources: edges of one graph, or EdgeSupport.key_degrees")
        # Kipf & Welling's graphs are undirected: d_j is the source's degree as a target.
        at_target, at_source = (d.clamp(min=1).to(wide(scores)).rsqrt() for d in (support.degrees, support.key_degrees))
        weights = at_target.index_select(0, support.target) * at_source.index_select(0, support.source)
        return weights.unsqueeze(-1).expand(-1, scores.shape[1])
