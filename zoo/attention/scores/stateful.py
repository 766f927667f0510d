"""Scores for decoders: scores that depend on previous weights, and the two scores of monotonic chunkwise attention.

A decoder begins with `Attention.start(query, key, support)` and passes to each step the state that the previous step
returned. If a call has several queries, `Attention` computes them one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.attention_state import AttentionState
from zoo.attention.factories import make_sized
from zoo.attention.initialization import glorot_
from zoo.attention.kernels.cpu.tanh import tanh_
from zoo.attention.kernels.dtypes import upcast
from zoo.attention.mechanism import PreparedKeys, Score, Traits, check_widths
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.support import Support
from zoo.types import NonNegativeInt, PositiveFloat, PositiveInt, validate_ranges

_LEAST_FERTILITY = 1e-3


@validate_ranges
class LocationAware(Score):
    """v · tanh(q + k + U f + b), with f = F * the previous weights (Chorowski et al. 2015, eq. 8-9).

    q = W s and k = V h are the caller's projections. The convolution gives each key the previous weights around it, so
    that keys of equal content can be told apart. It is a cross-correlation, as in `torch.nn.Conv1d`.

    With `behind` and `ahead` a query in evaluation attends to keys around the median of the previous weights alone
    (ibid., section 2.3, windowing), so that a sequence that is longer than those in training looks no different to it.
    Before the first query the median is the first key. A sequence in which nothing is said for more than `ahead` keys
    cannot be passed.

    Cost: O(pairs filters (kernel_size + d))

    Args:
        dim: Width of one head.
        heads: Number of heads.
        filters: Number of filters in F (10 in the paper, 32 in Tacotron 2).
        kernel_size: Size of a filter, an odd number (201 in the paper, 31 in Tacotron 2).
        behind, ahead: Keys before and behind the median that a query sees in evaluation. Default: all.
    """

    traits = Traits(layouts=(DenseSupport,), stateful=True, parallel=False)

    def __init__(
        self,
        *,
        dim: PositiveInt,
        heads: PositiveInt,
        filters: PositiveInt = 10,
        kernel_size: PositiveInt = 31,
        behind: NonNegativeInt | None = None,
        ahead: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, so that a filter has a middle, got {kernel_size}")
        self.behind, self.ahead = behind, ahead
        self.filters = nn.Parameter(torch.empty(heads, filters, kernel_size))
        self.from_filters = nn.Parameter(torch.empty(heads, filters, dim))
        self.vector = nn.Parameter(torch.empty(heads, dim))
        self.bias = nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in (self.filters, self.from_filters, self.vector):
            glorot_(parameter)
        nn.init.zeros_(self.bias)

    def forward(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b h k d"],
        support: DenseSupport,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "b h q k"]:
        before = _require_state(self, query, key, state)
        location = self._convolve(before.weights, before.of_score)
        shape = location.shape[:3]
        # k + [f; 1] [U; q + b]: each sum over all pairs of its own would cost as much as the product
        around = torch.cat([location, location.new_ones(*shape, 1, location.shape[4])], 3)
        query_part = (query + support.broadcast_heads(self.bias)).to(location.dtype).unsqueeze(3)
        weight = torch.cat([self.from_filters[:, None].expand(*shape, -1, -1), query_part], 3)
        keys = support.gather_keys(key).expand(*shape, -1, -1)
        hidden = torch.baddbmm(keys.flatten(0, 2), around.flatten(0, 2).mT, weight.flatten(0, 2))
        scores = support.dot_parameter(tanh_(hidden.view(keys.shape)), self.vector)
        return scores if self.training else self._mask_window(scores, before.weights)

    def start(self, key: Float[Tensor, "b h k d"]) -> Float[Tensor, "h k _"] | None:
        """Returns F as a matrix, for steps that convolve by one product: a quarter of the time of `conv1d` on CPUs.

        None if that takes more multiplications, or if a gradient has to pass through F at every step.
        """
        keys, size = key.shape[2], self.filters.shape[2]
        if torch.is_grad_enabled() or keys > size:
            return None
        # a filter that stands at key j meets key i at its place i - j + size // 2, if it has this place
        at_keys = F.pad(self.filters, (keys, keys)).unfold(2, keys, 1).narrow(2, size // 2 + 1, keys).flip(2)
        return at_keys.permute(0, 3, 1, 2).flatten(2)

    def sees_last_key(self, previous: Float[Tensor, "b h q k"], support: DenseSupport) -> Bool[Tensor, "b h q"] | None:
        """Returns True where a query after these weights sees the last permitted key; None: all do."""
        if self.training or self.ahead is None:
            return None
        at = torch.arange(previous.shape[-1], device=previous.device)
        mask = support.mask_of(previous)
        last = at[-1:] if mask is None else torch.where(mask, at, 0).amax(-1)
        return _median(previous) + self.ahead >= last

    def _mask_window(
        self, scores: Float[Tensor, "b h q k"], previous: Float[Tensor, "b h q k"]
    ) -> Float[Tensor, "b h q k"]:
        """Sets the scores of keys outside the window to -inf."""
        if self.behind is None and self.ahead is None:
            return scores
        offset = torch.arange(scores.shape[-1], device=scores.device) - _median(previous).unsqueeze(-1)
        if self.behind is not None:
            scores = scores.masked_fill(offset < -self.behind, -torch.inf)
        return scores if self.ahead is None else scores.masked_fill(offset > self.ahead, -torch.inf)

    def _convolve(
        self, previous: Float[Tensor, "b h q k"], as_matrix: Float[Tensor, "h k _"] | None
    ) -> Float[Tensor, "b h q f k"]:
        """Convolves the previous weights with the filters; `as_matrix` is the result of `start`."""
        heads, filters, size = self.filters.shape
        batch, _, queries, keys = previous.shape
        if as_matrix is not None and not torch.is_grad_enabled():
            rows = previous.to(as_matrix.dtype).transpose(0, 1).reshape(heads, batch * queries, keys)
            return (rows @ as_matrix).view(heads, batch, queries, filters, keys).transpose(0, 1)
        rows = previous.to(self.filters.dtype).transpose(1, 2).flatten(0, 1)
        if not rows.numel():  # torch refuses to convolve empty tensors
            return rows.new_zeros(*previous.shape[:3], filters, keys)
        features = F.conv1d(rows, self.filters.flatten(0, 1).unsqueeze(1), padding=size // 2, groups=heads)
        return features.view(batch, queries, heads, filters, keys).transpose(1, 2)


@validate_ranges
class CoverageAware(Score):
    """v · tanh(q + k + V c), where c is the total weight of the key so far (Tu et al. 2016, section 3.1; eq. 8-9).

    q = W s and k = U h are the caller's projections. With a fertility, c is divided by the number of output positions
    that the key is expected to align to, N sigmoid(U_f · k). The paper computes it from the encoder's state, this class
    from the projected key.

    Cost: O(pairs d)

    Args:
        dim: Width of one head.
        heads: Number of heads.
        fertility: N, the largest fertility of a key (2 in the paper). Default: c is not divided.
    """

    traits = Traits(layouts=(DenseSupport,), stateful=True, parallel=False)

    def __init__(self, *, dim: PositiveInt, heads: PositiveInt, fertility: PositiveFloat | None = None) -> None:
        super().__init__()
        self.fertility = fertility
        self.vector = nn.Parameter(torch.empty(heads, dim))
        self.from_coverage = nn.Parameter(torch.empty(heads, dim))
        self.to_fertility = None if fertility is None else nn.Parameter(torch.empty(heads, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            glorot_(parameter)

    def forward(
        self,
        query: Float[Tensor, "b h q d"],
        key: Float[Tensor, "b h k d"],
        support: DenseSupport,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "b h q k"]:
        covered = _require_state(self, query, key, state).total
        covered = upcast(covered)  # the total grows with every step
        if self.fertility is not None and self.to_fertility is not None:
            expected = torch.sigmoid((key * support.broadcast_heads(self.to_fertility)).sum(-1))
            covered = covered / support.gather_keys(
                (self.fertility * expected.to(covered.dtype)).clamp(_LEAST_FERTILITY)
            )
        of_coverage = covered.unsqueeze(-1) * self.from_coverage[:, None, None]
        hidden = tanh_(support.gather_queries(query) + support.gather_keys(key) + of_coverage)
        return support.dot_parameter(hidden.to(query.dtype), self.vector)


def _median(weights: Float[Tensor, "b h q k"]) -> Int[Tensor, "b h q"]:
    """Returns the first key up to which the weights have half of their sum."""
    sums = weights.cumsum(-1)
    return (sums < 0.5 * sums[..., -1:]).sum(-1)


def _require_state(score: Score, query: Tensor, key: Tensor, state: AttentionState | None) -> AttentionState:
    check_widths(query, key)
    if state is None:
        name = type(score).__name__
        raise ValueError(f"{name} depends on previous weights: pass a state, at the first step that of Attention.start")
    if state.weights.shape[-1] != key.shape[-2]:
        raise ValueError(f"the state is of {state.weights.shape[-1]} keys, and there are {key.shape[-2]}")
    if state.rows != query.shape[2]:
        raise ValueError(
            f"{type(score).__name__} computes one step at a time, because each step depends on the previous one: the "
            f"state has {state.rows} row and there are {query.shape[2]} queries; call it for each step"
        )
    return state


@validate_ranges
class ScorePair(Score):
    """Two scores for each pair, (2,...), as `MonotonicChunkwise` needs them (Chiu & Raffel 2018, section 2.3).

    The first score gets the first half of the width of queries and keys, the second score the rest, so that the two
    share no parameters of the caller's projections.

    Cost: O(pairs d)

    Args:
        monotonic, chunk: Classes or partials of scores; called with `dim` and `heads`, if their signature has them.
        dim: Width of queries and keys of one head, which the two scores share.
        heads: Number of heads.
    """

    def __init__(
        self,
        *,
        monotonic: Callable[..., Any],
        chunk: Callable[..., Any],
        dim: Annotated[int, ">= 2"],
        heads: PositiveInt,
    ) -> None:
        super().__init__()
        self.widths = [dim // 2, dim - dim // 2]
        self.monotonic: Score = make_sized(monotonic, {"dim": self.widths[0], "heads": heads})
        self.chunk: Score = make_sized(chunk, {"dim": self.widths[1], "heads": heads})
        self.prepares_keys = self.monotonic.prepares_keys or self.chunk.prepares_keys
        both = (self.monotonic.traits, self.chunk.traits)
        self.narrow(
            stateful=any(traits.stateful for traits in both),
            parallel=all(traits.parallel for traits in both),
            # no pair of numbers that is rotated together may be split between the scores
            rotation_invariant=self.widths[0] % 2 == 0 and all(traits.rotation_invariant for traits in both),
        )

    def prepare(self, key: Float[Tensor, "..."]) -> Float[Tensor, "..."] | PreparedKeys:
        if not self.prepares_keys:
            return key
        parts = zip((self.monotonic, self.chunk), torch.split(key, self.widths, -1), strict=True)
        keys = [score.unwrap(score.prepare(part)) for score, part in parts]
        if [part.shape[-1] for part in keys] != self.widths:
            raise ValueError("ScorePair needs scores that do not change the width of keys")
        return PreparedKeys(torch.cat(keys, -1))

    def forward(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "..."] | PreparedKeys,
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "2 ..."]:
        queries, keys = torch.split(query, self.widths, -1), torch.split(self.unwrap(key), self.widths, -1)
        parts = zip((self.monotonic, self.chunk), queries, keys, strict=True)
        return torch.stack([score(q, score.wrap(k), support, state) for score, q, k in parts])
