"""Co-attention: two inputs that attend to each other.

Goes: a module of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention.factories import AttentionFactory
from zoo.attention.mechanism import Use, check
from zoo.attention.normalizers.soft import Softmax
from zoo.attention.recording.recorder import AttentionProbe
from zoo.attention.scores.pairwise import Dot
from zoo.attention.site import AttentionSite
from zoo.attention.supports.dense import DenseSupport
from zoo.types import PositiveInt, validate_ranges

_DOT = AttentionFactory(score=Dot, normalizer=Softmax)


@validate_ranges
class CoAttention(nn.Module):
    """C = tanh(Q W V); each input is pooled with weights that depend on the other (Lu et al. 2016, eq. 3-5).

    H_v = tanh(V W_v + C^T (Q W_q)), H_q = tanh(Q W_q + C (V W_v)); weights softmax(H_v w_v) and softmax(H_q w_q).
    Positions are rows here and columns in the paper. The site `affinity` records C, whose numbers are signed. With a
    mechanism that ignores queries and keys (`Uniform`) each input is averaged, and there is no C.

    Cost: O(n m d)

    Args:
        dim: Width of both inputs.
        hidden: Width of H_v and H_q, the paper's k. Default: `dim`.
        attend: `(dim, heads) -> AttentionSite`, called with `hidden` and one head.
    """

    def __init__(
        self, *, dim: PositiveInt, hidden: PositiveInt | None = None, attend: Callable[[int, int], AttentionSite] = _DOT
    ) -> None:
        super().__init__()
        hidden = dim if hidden is None else hidden
        self.first, self.second = (_site(attend, hidden, "CoAttention") for _ in range(2))
        self.affinity: Affinity | None = None
        if self.first.is_content_based:
            self.affinity = Affinity(dim=dim)
            self.of_first = nn.Linear(dim, hidden, bias=False)
            self.of_second = nn.Linear(dim, hidden, bias=False)
            self.query_first = nn.Parameter(torch.randn(hidden) * hidden**-0.5)
            self.query_second = nn.Parameter(torch.randn(hidden) * hidden**-0.5)

    def forward(
        self,
        first: Float[Tensor, "b n d"],
        second: Float[Tensor, "b m d"],
        first_mask: Bool[Tensor, "b n"] | None = None,
        second_mask: Bool[Tensor, "b m"] | None = None,
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        """Returns one vector for each input, zeros for an empty one. Masks are True at real positions."""
        first, second = _zero_padding(first, first_mask), _zero_padding(second, second_mask)
        if self.affinity is None:
            return _mean(self.first, first, first_mask), _mean(self.second, second, second_mask)
        # padding was set to zero and these maps have no bias, so it adds nothing to the sums of the other input
        affinity = self.affinity(first, second)
        mine, other = self.of_first(first), self.of_second(second)
        key_first = torch.tanh(mine + affinity.mT @ other)
        key_second = torch.tanh(other + affinity @ mine)
        return (
            _read(self.first, self.query_first, key_first, first, first_mask),
            _read(self.second, self.query_second, key_second, second, second_mask),
        )


@validate_ranges
class AlternatingCoAttention(nn.Module):
    """q = A(Q; 0), v' = A(V; q), q' = A(Q; v'): each input is read by the light of the other (Lu et al. 2016, eq. 6).

    A(X; g) = sum_i a_i x_i, a = softmax(H w), H = tanh(X W_x + g W_g). Each of the three steps has its own weights; the
    first has no W_g, because its g is zero. V is the first input here, and Q the second. With a mechanism that ignores
    queries and keys (`Uniform`) each input is averaged.

    Cost: O((n + m) d^2)

    Args:
        dim: Width of both inputs.
        hidden: Width of H, the paper's k. Default: `dim`.
        attend: `(dim, heads) -> AttentionSite`, called with `hidden` and one head.
    """

    def __init__(
        self, *, dim: PositiveInt, hidden: PositiveInt | None = None, attend: Callable[[int, int], AttentionSite] = _DOT
    ) -> None:
        super().__init__()
        hidden = dim if hidden is None else hidden
        self.alone, self.first, self.second = (_site(attend, hidden, "AlternatingCoAttention") for _ in range(3))
        self.light: nn.ModuleDict | None = None
        if self.first.is_content_based:
            steps = ("alone", "first", "second")
            self.light = nn.ModuleDict({step: _Light(dim, hidden, guided=step != "alone") for step in steps})

    def forward(
        self,
        first: Float[Tensor, "b n d"],
        second: Float[Tensor, "b m d"],
        first_mask: Bool[Tensor, "b n"] | None = None,
        second_mask: Bool[Tensor, "b m"] | None = None,
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]:
        """Returns one vector for each input, zeros for an empty one. Masks are True at real positions."""
        first, second = _zero_padding(first, first_mask), _zero_padding(second, second_mask)
        if self.light is None:
            _mean(self.alone, second, second_mask)  # for recorders; the later steps do not read it
            return _mean(self.first, first, first_mask), _mean(self.second, second, second_mask)
        alone = self.light["alone"](self.alone, second, None, second_mask)
        read_first = self.light["first"](self.first, first, alone, first_mask)
        return read_first, self.light["second"](self.second, second, read_first, second_mask)


@validate_ranges
class TwoWayAttention(nn.Module):
    """L = A W B^T; A attends to B with the softmax of its rows, and B to A with the softmax of its columns.

    See Xiong et al. 2017, section 2.2; there W and a tanh belong to the question encoder, and each input has an
    additional sentinel. Each direction is dot-product attention on its own, so L itself is never stored. With a
    mechanism that ignores queries and keys (`Uniform`) there is no W.

    Cost: O(n m d)

    Args:
        dim: Width of both inputs.
        attend: `(dim, heads) -> AttentionSite`, called with `dim` and one head.
        identity: Whether W starts as the identity: before training, positions then attend to those that resemble them,
            as where there is no W (Chen et al. 2017, eq. 11). Default: it is drawn at random.
    """

    def __init__(
        self, *, dim: PositiveInt, attend: Callable[[int, int], AttentionSite] = _DOT, identity: bool = False
    ) -> None:
        super().__init__()
        self.first, self.second = (_site(attend, dim, "TwoWayAttention", masks_queries=True) for _ in range(2))
        self.affinity: nn.Module = nn.Identity()
        if self.first.is_content_based:
            self.affinity = nn.Linear(dim, dim, bias=False)
            if identity:
                nn.init.eye_(self.affinity.weight)

    def forward(
        self,
        first: Float[Tensor, "b n d"],
        second: Float[Tensor, "b m d"],
        first_mask: Bool[Tensor, "b n"] | None = None,
        second_mask: Bool[Tensor, "b m"] | None = None,
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b m d"]]:
        """Returns the context of each position of `first` in `second`, and the reverse; zeros at padding."""
        first, second = _zero_padding(first, first_mask), _zero_padding(second, second_mask)
        mapped = self.affinity(first)
        read_first = _attend_between_inputs(self.first, mapped, second, second, first_mask, second_mask)
        read_second = _attend_between_inputs(self.second, second, mapped, first, second_mask, first_mask)
        return read_first, read_second


@validate_ranges
class AttentionFlow(nn.Module):
    """S_tj = w · [h_t; u_j; h_t * u_j]; a paragraph H attends to a question U, and U to H (Seo et al. 2017, eq. 1-2).

    u'_t = sum_j softmax_j(S_tj) u_j and h' = sum_t softmax_t(max_j S_tj) h_t. The result is
    G_t = [h_t; u'_t; h_t * u'_t; h_t * h'] (eq. 3). With w = [w_h; w_u; w_m], S_tj is the product of
    [h_t * w_m + w_u; h_t · w_h] and [u_j; 1], so that no tensor has an entry for every t, j and feature. With a
    mechanism that ignores queries and keys (`Uniform`) there is no w.

    Cost: O(n m d)

    Args:
        dim: Width of both inputs; G has four times this width.
        attend: `(dim, heads) -> AttentionSite`, called with one head and the width of those products, `dim` + 1, for S,
            and with width 1 for the maxima of S. The formula above has `Dot` and `Softmax`.
        product: What all numbers of w_m are before training: positions then attend to those that resemble them, the
            more sharply the greater it is. Default: they are drawn at random.
    """

    def __init__(
        self, *, dim: PositiveInt, attend: Callable[[int, int], AttentionSite] = _DOT, product: float | None = None
    ) -> None:
        super().__init__()
        self.first = _site(attend, dim + 1, "AttentionFlow", masks_queries=True)
        self.second = _site(attend, 1, "AttentionFlow")
        self.of_pair: nn.Parameter | None = None
        if self.first.is_content_based:
            self.of_pair = nn.Parameter(torch.empty(3, dim))
            nn.init.uniform_(self.of_pair, -((3 * dim) ** -0.5), (3 * dim) ** -0.5)
            if product is not None:
                nn.init.constant_(self.of_pair.data[2], product)

    def forward(
        self,
        first: Float[Tensor, "b n d"],
        second: Float[Tensor, "b m d"],
        first_mask: Bool[Tensor, "b n"] | None = None,
        second_mask: Bool[Tensor, "b m"] | None = None,
    ) -> Float[Tensor, "b n 4*d"]:
        """Returns G for the paragraph `first` and the question `second`; zeros at padding."""
        first, second = _zero_padding(first, first_mask), _zero_padding(second, second_mask)
        query, key, most = self._factor_scores(first, second, second_mask)
        read = _attend_between_inputs(self.first, query, key, second, first_mask, second_mask)
        support = DenseSupport() if first_mask is None else DenseSupport.from_key_mask(first_mask)
        one = most.new_ones(len(first), 1, 1, 1)
        whole = self.second(one, most[:, None], first[:, None], support)[0].squeeze(1)
        return torch.cat([first, read, first * read, first * whole], -1)

    def _factor_scores(
        self, first: Float[Tensor, "b n d"], second: Float[Tensor, "b m d"], second_mask: Bool[Tensor, "b m"] | None
    ) -> tuple[Float[Tensor, "b n e"], Float[Tensor, "b m e"], Float[Tensor, "b n 1"]]:
        """Returns queries and keys whose products are S, and the largest of each row of S; zeros if nothing is read."""
        if self.of_pair is None:
            nothing, width = first.new_zeros(()), first.shape[-1] + 1
            query, key = (nothing.expand(*x.shape[:2], width) for x in (first, second))
            return query, key, nothing.expand(*first.shape[:2], 1)
        of_first, of_second, of_both = self.of_pair
        query = torch.cat([first * of_both + of_second, (first @ of_first).unsqueeze(-1)], -1)
        key = torch.cat([second, second.new_ones(*second.shape[:2], 1)], -1)
        scores = query @ key.mT
        if second_mask is not None:
            scores = scores.masked_fill(~second_mask.unsqueeze(1), -math.inf)
        if not second.shape[1]:
            return query, key, scores.new_zeros(*first.shape[:2], 1)
        most = scores.amax(-1, keepdim=True)
        return query, key, most.masked_fill(most == -math.inf, 0.0)


@validate_ranges
class Affinity(nn.Module):
    """C = tanh(Q W V), the affinity of every pair of two inputs (Lu et al. 2016, eq. 3).

    W is `weight` / `dim`. An entry of C depends on all `dim`^2 entries of W, which a step of Adam changes by about the
    same amount: without the division, C was -1 or 1 for every pair after a few steps, and passed no gradient.

    Its probe passes C, which is read by rows and by columns. C is signed and does not sum to one.

    Cost: O(n m d)

    Args:
        dim: Width of both inputs.
    """

    def __init__(self, *, dim: PositiveInt) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dim))
        self.probe = AttentionProbe()

    @property
    def matrix(self) -> Float[Tensor, "d d"]:
        """W."""
        return self.weight / self.weight.shape[0]

    def forward(self, first: Float[Tensor, "b n d"], second: Float[Tensor, "b m d"]) -> Float[Tensor, "b m n"]:
        affinity = torch.tanh(second @ self.matrix.mT @ first.mT)
        if self.probe.is_open:
            self.probe.emit(affinity, None, ("batch", "second", "first"))
        return affinity


class _Light(nn.Module):
    """A(X; g) of alternating co-attention (Lu et al. 2016, eq. 6), but for its site."""

    def __init__(self, dim: int, hidden: int, *, guided: bool) -> None:
        super().__init__()
        self.project = nn.Linear(dim, hidden, bias=False)
        self.guide = nn.Linear(dim, hidden, bias=False) if guided else None
        self.query = nn.Parameter(torch.randn(hidden) * hidden**-0.5)

    def forward(
        self,
        site: Any,
        x: Float[Tensor, "b n d"],
        guide: Float[Tensor, "b d"] | None,
        mask: Bool[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b d"]:
        hidden = self.project(x)
        if self.guide is not None:
            hidden = hidden + self.guide(guide).unsqueeze(1)
        return _read(site, self.query, torch.tanh(hidden), x, mask)


def _site(
    attend: Callable[[int, int], AttentionSite], width: int, user: str, *, masks_queries: bool = False
) -> AttentionSite:
    site = attend(width, 1)
    site.check_layout(DenseSupport, user)
    check(site, Use.CROSS | Use.SIMULTANEOUS | (Use.MASKED_QUERIES if masks_queries else Use(0)), user)
    return site


def _zero_padding(x: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None) -> Float[Tensor, "b n d"]:
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, x.new_zeros(()))


def _read(
    attend: Any,
    query: Float[Tensor, " k"],
    key: Float[Tensor, "b n k"],
    value: Float[Tensor, "b n d"],
    mask: Bool[Tensor, "b n"] | None,
) -> Float[Tensor, "b d"]:
    support = DenseSupport() if mask is None else DenseSupport.from_key_mask(mask)
    one = query.to(key.dtype).expand(len(key), 1, 1, -1)
    return attend(one, key.unsqueeze(1), value.unsqueeze(1), support)[0].flatten(1)  # type: ignore[no-any-return]


def _mean(attend: Any, value: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None) -> Float[Tensor, "b d"]:
    """Reads an input by a mechanism that ignores queries and keys."""
    return _read(attend, value.new_zeros(1), value.new_zeros(()).expand(*value.shape[:2], 1), value, mask)


def _attend_between_inputs(
    attend: Any,
    query: Float[Tensor, "b n k"],
    key: Float[Tensor, "b m k"],
    value: Float[Tensor, "b m d"],
    query_mask: Bool[Tensor, "b n"] | None,
    key_mask: Bool[Tensor, "b m"] | None,
) -> Float[Tensor, "b n d"]:
    permitted = None if key_mask is None else key_mask[:, None, None, :]
    if query_mask is not None:
        rows = query_mask[:, None, :, None]
        permitted = rows if permitted is None else rows & permitted
    inputs = (x.unsqueeze(1) for x in (query, key, value))
    return attend(*inputs, DenseSupport(permitted))[0].squeeze(1)  # type: ignore[no-any-return]
