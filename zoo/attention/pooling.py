"""Pooling: a fixed number of learned queries attend to a sequence of any length.

`Pooling` takes sequences side by side, padded, or packed: one row after another, with the edges from rows to the groups
that they belong to. Nothing is padded then, however different the groups are in size.

Goes: a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.cross_attention import ZeroProjection
from zoo.attention.factories import AttentionFactory
from zoo.attention.mechanism import Use, check
from zoo.attention.multihead import MultiheadAttention
from zoo.attention.normalizers.soft import Softmax
from zoo.attention.scores.pairwise import Dot
from zoo.attention.site import AttentionSite
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.edges import EdgeSupport
from zoo.types import PositiveInt, validate_ranges

_DOT = AttentionFactory(score=Dot, normalizer=Softmax)


@validate_ranges
class Pooling(nn.Module):
    """sum_t a_t h_t, a = softmax(u_t · u_w), u_t = tanh(W h_t + b) (Yang et al. 2016, eq. 5-7).

    The paper has one query u_w; with several, each pools on its own. With u_t = h_t this is sequence pooling (Hassani
    et al. 2021, section 3.2) without its bias, which the softmax cancels. With a mechanism that ignores queries and
    keys (`Uniform`) there are no W, b and u_w.

    Cost: O(n m d)

    Args:
        dim: Width of the input.
        queries: Number of learned queries, m.
        hidden: Width of u. Default: `dim`.
        project: If False, u_t = h_t, without W, b and tanh.
        attend: `(dim, heads) -> AttentionSite`, called with the width of u and one head.
        over: Kind of support: `DenseSupport`, or `EdgeSupport` for pooling along edges.
    """

    compared = ("project", "query")
    """Names of the parts that are left out if the mechanism ignores queries and keys."""

    def __init__(
        self,
        *,
        dim: PositiveInt,
        queries: PositiveInt = 1,
        hidden: PositiveInt | None = None,
        project: bool = True,
        attend: Callable[[int, int], AttentionSite] = _DOT,
        over: type[DenseSupport] | type[EdgeSupport] = DenseSupport,
    ) -> None:
        super().__init__()
        if hidden is not None and not project:
            raise ValueError(f"hidden={hidden} is the width of what x is projected to; without projection leave it out")
        hidden = dim if hidden is None else hidden
        self.project: nn.Module | None = nn.Linear(dim, hidden) if project else None
        self.query: Tensor = _make_queries(queries, hidden)
        self.attend = attend(hidden, 1)
        self.attend.check_layout(over, "Pooling")
        check(self.attend, Use.CROSS, "Pooling")
        if not self.attend.is_content_based:
            del self.query
            self.project = ZeroProjection(hidden) if project else None
            self.register_buffer("query", torch.zeros(queries, hidden), persistent=False)

    def forward(
        self, x: Float[Tensor, "*b n d"], support: DenseSupport | EdgeSupport | None = None
    ) -> Float[Tensor, "g m d"]:
        """Pools (b,n,d) to (b,m,d) over a `DenseSupport`, or (n,d) to (g,m,d) over edges from rows to groups.

        In a map over edges, query i of group g is query number g * queries + i.
        """
        if isinstance(support, EdgeSupport):
            support = support.repeat(len(self.query))
            x = support.zero_masked(x.unsqueeze(1))
            query = self.query.repeat(support.pattern.shape[0] // len(self.query), 1).unsqueeze(1)
            return self._pool(query, x, support).view(-1, *self.query.shape[:1], x.shape[-1])
        support = DenseSupport() if support is None else support
        x = support.zero_masked(x.unsqueeze(1))
        return self._pool(self.query.expand(len(x), 1, -1, -1), x, support).squeeze(1)

    def _pool(self, query: Tensor, x: Tensor, support: DenseSupport | EdgeSupport) -> Tensor:
        key = x if self.project is None else torch.tanh(self.project(x))
        return self.attend(query.to(key.dtype), key, x, support)[0]  # type: ignore[no-any-return]


@validate_ranges
class LatentPooling(nn.Module):
    """MultiheadAttention(learned queries, x, x): Perceiver's cross-attention (Jaegle et al. 2021, section 3.1).

    The Set Transformer's pooling (Lee et al. 2019, eq. 11) is the same attention inside a residual connection and
    feed-forward layers.

    Cost: O(n m d)

    Args:
        dim: Width of the queries and of the output.
        queries: Number of learned queries, m.
        heads: Number of heads; must divide `dim`.
        attend: `(dim, heads) -> AttentionSite`, called with the width of one head.
        source_dim: Width of the input. Default: `dim`.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        queries: PositiveInt,
        heads: PositiveInt,
        attend: Callable[[int, int], AttentionSite],
        source_dim: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        self.query = _make_queries(queries, dim)
        self.heads = MultiheadAttention(dim=dim, heads=heads, attend=attend, source_dim=source_dim)
        check(self.heads, Use.CROSS, "LatentPooling")

    def forward(self, x: Float[Tensor, "b n s"], support: DenseSupport | None = None) -> Float[Tensor, "b m d"]:
        return self.heads(self.query.expand(len(x), -1, -1), x, support)[0]  # type: ignore[no-any-return]


def _make_queries(queries: int, width: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(queries, width) * width**-0.5)
