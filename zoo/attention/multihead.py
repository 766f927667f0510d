"""Multi-head attention: projections around Attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.cross_attention import ZeroProjection
from zoo.attention.decoding import add_initial_state, attend_step, ensure_state, extend
from zoo.attention.factories import make_sized
from zoo.attention.kv_cache import KVCache, zero_masked_nonfinite
from zoo.attention.mechanism import Position, Use, check
from zoo.attention.site import AttentionSite
from zoo.attention.supports.dense import DenseSupport
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class MultiheadAttention(nn.Module):
    """Concat(head_1 ... head_h) W_O (Vaswani et al. 2017, section 3.2.2).

    With fewer key heads than heads, each key head serves a group of neighbouring query heads (grouped-query attention,
    Ainslie et al. 2023, section 2.2; multi-query attention with one key head, Shazeer 2019). The memory of a decoder
    shrinks by the same factor.

    A mechanism that ignores queries and keys (`Uniform`) gets no projections of them, and no position that would only
    change scores.

    Args:
        dim: Width of the queries and of the output.
        heads: Number of heads; must divide `dim`.
        attend: `(dim, heads) -> AttentionSite`, called with the width of one head.
        position: Class or partial that returns a `Position`; called with the width of one head (`dim`) and `heads`, if
            its signature has them.
        key_heads: Number of heads of keys and values; must divide `heads`. Default: `heads`.
        source_dim: Width of the source. Default: `dim`.
        bias: If True, the projections of queries, keys and values have biases.
        out_bias: If True, the output projection has a bias. Default: `bias`.
        project: If False, the heads are concatenated without W_O.
    """

    compared = ("query", "key")
    """Names of the projections that are left out if the mechanism ignores queries and keys."""

    def __init__(
        self,
        *,
        dim: PositiveInt,
        heads: PositiveInt,
        attend: Callable[[int, int], AttentionSite],
        position: Callable[..., Position] | None = None,
        key_heads: PositiveInt | None = None,
        source_dim: PositiveInt | None = None,
        bias: bool = True,
        out_bias: bool | None = None,
        project: bool = True,
    ) -> None:
        super().__init__()
        if out_bias and not project:
            raise ValueError("out_bias=True needs the output projection, which project=False leaves out")
        if dim % heads:
            raise ValueError(f"dim={dim} is not divisible by heads={heads}")
        key_heads = heads if key_heads is None else key_heads
        if heads % key_heads:
            raise ValueError(f"heads={heads} is not divisible by key_heads={key_heads}")
        source_dim = dim if source_dim is None else source_dim
        self.heads = heads
        self.key_heads = key_heads
        self.query: nn.Module = nn.Linear(dim, dim, bias=bias)
        self.key: nn.Module = nn.Linear(source_dim, dim // heads * key_heads, bias=bias)
        self.value = nn.Linear(source_dim, dim // heads * key_heads, bias=bias)
        self.out = nn.Linear(dim, dim, bias=bias if out_bias is None else out_bias) if project else nn.Identity()
        self.attend = attend(dim // heads, heads)
        if not self.attend.is_content_based:
            self.query, self.key = ZeroProjection(dim), ZeroProjection(dim // heads * key_heads)
        if position is not None:
            position_part = make_sized(position, {"dim": dim // heads, "heads": heads})
            if self.attend.is_content_based or position_part.traits.needs_weights:
                self.attend.set_position(position_part)
        self.attend.check_layout(DenseSupport, "MultiheadAttention")

    def prepare(self, source: Float[Tensor, "b k s"], support: DenseSupport | None = None) -> KVCache:
        """Projects the keys and values of a sequence once, for all later calls of `forward` or `attend_step`.

        Args:
            support: Support that is False at padding. Default: no padding.
        """
        support = DenseSupport() if support is None else support
        return self.attend.prepare(*self._project(_zero_padding(source, support)), support)

    def add_initial_state(self, memory: KVCache) -> KVCache:
        """Returns the memory with the state before the first query, so that `attend_step` sums up all weights."""
        return add_initial_state(self.attend, memory, self.heads)

    def extend(self, memory: KVCache, source: Float[Tensor, "b k s"], support: DenseSupport | None = None) -> KVCache:
        """Appends the positions of `source` to the memory.

        Args:
            support: Support over all keys: those in the memory, then those of `source`.
        """
        support = DenseSupport() if support is None else support
        here = support.select_last_keys(source.shape[1])
        later = self.attend.prepare(*self._project(_zero_padding(source, here)), here, memory.length)
        return extend(self.attend, memory, later, support, self.heads)

    def step(
        self, x: Float[Tensor, "b q d"], state: Any = None, support: DenseSupport | None = None
    ) -> tuple[Float[Tensor, "b q d"], Any]:
        """Computes causal self-attention at the positions that follow those in `state`: the next rows of a full pass.

        Args:
            state: `KVCache` (for linear attention, `LinearState`) returned by `prepare` or by the previous step.
            support: Causal support from these queries to all keys so far, including their own. Default: no mask.

        Returns:
            The output at these positions, and the state after them.
        """
        support = DenseSupport(causal=True) if support is None else support
        if not support.causal:
            raise ValueError("the steps of MultiheadAttention are causal: their support must be causal too")
        if state is None:
            check(self.attend, Use.CAUSAL | Use.STEPWISE)
        x = _zero_padding(x, support.select_last_keys(x.shape[1]))
        query = _split_heads(self.query(x), self.heads)
        context, state = self.attend.follow(query, *self._project(x), support, state)
        return self.out(_merge_heads(context)), state

    def attend_step(
        self, query: Float[Tensor, "b q d"], memory: KVCache, first: int = 0, *, parallel_hypotheses: bool = False
    ) -> tuple[Float[Tensor, "b q d"], KVCache]:
        """Computes attention from the next queries of a decoder to its source.

        Args:
            first: Number of queries before these.
            parallel_hypotheses: If True, the queries do not follow each other: each is the next one of its own
                hypothesis, and the hypotheses of a sentence share its keys.

        Returns:
            The output at these queries, and the memory with their attention state.
        """
        heads = _split_heads(self.query(query), self.heads)
        context, memory = attend_step(self.attend, heads, memory, first, parallel_hypotheses=parallel_hypotheses)
        return self.out(_merge_heads(context)), memory

    def forward(
        self,
        query: Float[Tensor, "b q d"],
        source: Float[Tensor, "b k s"] | KVCache | None = None,
        support: DenseSupport | None = None,
        state: Any = None,
    ) -> tuple[Float[Tensor, "b q d"], Any]:
        """Computes attention from `query` to `source`, or self-attention if there is no source.

        Args:
            source: A sequence, or the `KVCache` that `prepare` returned for one. Default: `query`.
            support: Pairs that may attend. Default: the support of the memory, or all pairs.
            state: `AttentionState` or `LinearState` after the queries before these, for queries that are given in
                several calls. Default: these are the first queries.

        Returns:
            The output at each query, and the state after them (None if no state was given).
        """
        if isinstance(source, KVCache):
            heads = _split_heads(self.query(query), self.heads)
            context, after = self.attend.read(heads, source, support, state)
        else:
            support = DenseSupport() if support is None else support
            visible = _zero_padding(query if source is None else source, support)
            heads = _split_heads(self.query(visible if source is None else query), self.heads)
            key, value = self._project(visible)
            first = ensure_state(self.attend, heads, key, support, state) if source is None else state
            context, after = self.attend(heads, key, value, support, first)
        return self.out(_merge_heads(context)), None if state is None else after

    def attend_projected(
        self,
        query: Float[Tensor, "b q d"],
        key: Float[Tensor, "b k e"],
        value: Float[Tensor, "b k e"],
        support: DenseSupport,
    ) -> Float[Tensor, "b q d"]:
        """Computes `forward` without its projections, for queries, keys and values that are already projected."""
        heads, *source = (
            _split_heads(query, self.heads),
            _split_heads(key, self.key_heads),
            _split_heads(value, self.key_heads),
        )
        state = ensure_state(self.attend, heads, source[0], support, None)
        return _merge_heads(self.attend(heads, *source, support, state)[0])

    def _project(self, source: Float[Tensor, "b k s"]) -> tuple[Float[Tensor, "b g k d"], Float[Tensor, "b g k d"]]:
        return _split_heads(self.key(source), self.key_heads), _split_heads(self.value(source), self.key_heads)


def _zero_padding(source: Float[Tensor, "b k s"], support: DenseSupport) -> Float[Tensor, "b k s"]:
    """Sets NaN and infinity at forbidden positions to zero: 0 x NaN is NaN in the gradient of a projection."""
    return zero_masked_nonfinite(source.unsqueeze(1), support).squeeze(1)


def _merge_heads(x: Float[Tensor, "b h n e"]) -> Float[Tensor, "b n d"]:
    return x.transpose(1, 2).flatten(2)


def _split_heads(x: Float[Tensor, "b n d"], heads: int) -> Float[Tensor, "b h n e"]:
    return x.view(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(1, 2)
