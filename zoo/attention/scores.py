"""What a query thinks of a key.

A score is a module `(query, key, support, state) -> one number per pair and head`. It has no projections of its own
input: those are the caller's (`MultiHead`, a graph layer), done once per sequence. `Attend.prepare` calls `prepare` on
the projected keys; what it returns is what `forward` then takes as `key`.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.state import AttentionState
from zoo.attention.supports import Support


class Constant(nn.Module):
    """Every key is worth the same: the score of a model without attention."""

    def prepare(self, key: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return key

    def forward(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        return support.zeros(query, key)


class Dot(nn.Module):
    """q · k (Luong et al. 2015, section 3.1, dot).

    What is a dot product of changed queries and keys says how it changes them (`of_query`, `prepare`, `scale`), and
    is then computed by the kernels for dot products.
    """

    def prepare(self, key: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return key

    def of_query(self, query: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return query

    def scale(self, width: int) -> float:
        return 1.0

    def forward(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        return support.dot(self.of_query(query) * self.scale(query.shape[-1]), key)


class ScaledDot(Dot):
    """q · k / sqrt(d) (Vaswani et al. 2017, eq. 1): unit variance whatever the width."""

    def scale(self, width: int) -> float:
        return 1.0 / math.sqrt(width)


class Additive(nn.Module):
    """v · tanh(q + k) (Bahdanau et al. 2015, appendix A.1.2; q = W s and k = U h are the caller's projections)."""

    def __init__(self, *, dim: int, heads: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _glorot_(self.vector)

    def prepare(self, key: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return key

    def forward(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        hidden = torch.tanh(support.at_query(query) + support.at_key(key))
        return support.project(hidden, self.vector)


class GAT(nn.Module):
    """LeakyReLU(a_q · q + a_k · k) (Velickovic et al. 2018, eq. 3, with a split into its two halves).

    The ranking of the keys does not depend on the query: static attention (Brody et al. 2022, theorem 1).
    """

    def __init__(self, *, dim: int, heads: int, slope: float = 0.2) -> None:
        super().__init__()
        self.slope = slope
        self.to_query = nn.Parameter(torch.empty(heads, dim))
        self.to_key = nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _glorot_(self.to_query)
        _glorot_(self.to_key)

    def prepare(self, key: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return key

    def forward(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        from_query = (query * support.per_head(self.to_query)).sum(-1)
        from_key = (key * support.per_head(self.to_key)).sum(-1)
        return F.leaky_relu(support.at_query(from_query) + support.at_key(from_key), self.slope)


class GATv2(nn.Module):
    """a · LeakyReLU(q + k) (Brody et al. 2022, eq. 7): the ranking may depend on the query."""

    def __init__(self, *, dim: int, heads: int, slope: float = 0.2) -> None:
        super().__init__()
        self.slope = slope
        self.vector = nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _glorot_(self.vector)

    def prepare(self, key: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return key

    def forward(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None = None
    ) -> Float[Tensor, "..."]:
        hidden = F.leaky_relu(support.at_query(query) + support.at_key(key), self.slope)
        return support.project(hidden, self.vector)


def _glorot_(vectors: Float[Tensor, "h d"]) -> None:
    """Glorot & Bengio 2010, each head's vector a layer of its own from d numbers to one."""
    for head in range(len(vectors)):
        nn.init.xavier_uniform_(vectors[head : head + 1])
