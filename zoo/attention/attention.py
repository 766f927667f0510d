"""Attention is four choices: score a pair, limit its support, normalize, combine.

The textbook case is two lines (Vaswani et al. 2017, eq. 1), `attention_weights` and `dot_product_attention` below:

    W = softmax(Q K^T / sqrt(d))      how much each query attends to each key it may see; a row sums to one
    C = W V                           the context of each query, a mean of the values

    >>> query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 8)
    >>> context = dot_product_attention(query, key, value)             # (batch, heads, queries, width)

Every other mechanism here replaces one of the four choices, and `Attention` puts them together:

    s_ij = score(q_i, k_j) + b_ij     for every pair (i, j) of the support; b is the bias of a position, if there is one
    w_i  = normalize(s_i)             over the keys that query i may see
    c_i  = sum_j w_ij v_j             the context of query i

`Attention(ScaledDot(), Softmax())` is the textbook case again, computed by a fused kernel; with `Additive` as its score
it is the attention of Bahdanau et al. 2015 (appendix A.1.2). The scores are in `scores/`, the normalizers in
`normalizers/`, and who sees whom is a `Support`: a mask, a window, or the edges of a graph. A query that may see no key
has zero weights and a zero context. `Attention` owns what all mechanisms share: dropout of weights, the probe through
which maps are observed, and the choice of a fused kernel where one computes exactly this combination.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention.attention_state import AttentionState, NormalizerOutput
from zoo.attention.dropout import DropWeights
from zoo.attention.kernels import fused
from zoo.attention.kernels import fused_blocks as fused_blocks  # registers its kernel
from zoo.attention.kv_cache import KVCache, repeat_kv, zero_masked_nonfinite
from zoo.attention.mechanism import Normalizer, Position, PreparedKeys, Restriction, Score, check_layout
from zoo.attention.site import AttentionSite
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.support import Support


def attention_weights(
    query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys d"], support: Support | None = None
) -> Float[Tensor, "..."]:
    """Computes softmax(Q K^T / sqrt(d)), the weight of every pair that the support permits; zeros elsewhere.

    Args:
        query: (b, h, q, d): examples, heads, queries, width.
        key: (b, h, k, d).
        support: Who may attend to whom, `DenseSupport(causal=True)` for example. Default: everyone to everyone.

    Returns:
        (b, h, q, k); other supports have pairs of another form, such as one row for each edge.
    """
    support = DenseSupport() if support is None else support
    scores = support.dot(query / math.sqrt(query.shape[-1]), key)  # (b,h,q,k): q_i · k_j / sqrt(d)
    return support.softmax(scores)  # (b,h,q,k): each row over the keys that its query may see


def dot_product_attention(
    query: Float[Tensor, "*queries d"],
    key: Float[Tensor, "*keys d"],
    value: Float[Tensor, "*values v"],
    support: Support | None = None,
) -> Float[Tensor, "..."]:
    """Computes softmax(Q K^T / sqrt(d)) V with stored weights; `Attention(ScaledDot(), Softmax())` is faster.

    Args:
        value: (b, h, k, v): one value for each key.
        query, key, support: See `attention_weights`.

    Returns:
        (b, h, q, v): the context of each query.
    """
    support = DenseSupport() if support is None else support
    return support.combine(attention_weights(query, key, support), value)


class Attention(AttentionSite):
    """c_i = sum_j w_ij v_j, w_i = normalize(score(q_i, k_j) + b_ij): one attention site.

    Args:
        score: Computes s_ij.
        normalizer: Computes w_i from s_i.
        restrict: Narrows the support that the site is given, to a window for example. Default: None.
        dropout: Probability that a weight is dropped in training, after normalization; or a `DropWeights`.
    """

    score: Score
    normalizer: Normalizer
    restrict: Restriction | None
    dropout: DropWeights

    def __init__(
        self,
        score: Score,
        normalizer: Normalizer,
        *,
        restrict: Restriction | None = None,
        dropout: float | DropWeights = 0.0,
    ) -> None:
        super().__init__()
        _check_kind(score, Score)
        _check_kind(normalizer, Normalizer)
        if restrict is not None:
            _check_kind(restrict, Restriction)
        self.score = score
        self.normalizer = normalizer
        self.restrict = restrict
        self.dropout = dropout if isinstance(dropout, DropWeights) else DropWeights(dropout)
        self.stops_at_end = False
        """Whether a text ends where a query passes all keys, and nowhere else; for a task that trains this."""

    def forward(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        value: Float[Tensor, "*values v"],
        support: Support,
        state: AttentionState | None = None,
    ) -> tuple[Float[Tensor, "..."], AttentionState | None]:
        """Attends from queries to keys. The support defines the shapes: see `zoo.attention.supports.support`.

        Keys and values may have fewer heads than queries: each then serves a group of neighbouring query heads.

        Args:
            state: The result of `start` or of the previous call. The queries are then consecutive steps of a decoder.

        Returns:
            The context of each query, and the state after these queries (None if none was given).
        """
        support.check(query, key, value)  # (b,h,q,d) (b,g,k,d) (b,g,k,v), g heads of keys and values, in dense layouts
        support = self._narrow(query, key, support)  # by `restrict`: a window, for example
        memory = self.prepare(key, value, support)  # what depends on keys alone; keys that nobody may see are zero
        return self._attend(query, memory, support, state)  # (b,h,q,v)

    def weights(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        """Returns the weights before dropout; for hard attention the probabilities that they are drawn from."""
        support = self._narrow(query, key, support)
        key = repeat_kv(self._prepare_keys(key, 0), query.shape[1])
        return self._compute_weights(self._turn(query, key, support), key, support, state)[0]

    def prepare(
        self, key: Float[Tensor, "*keys dk"], value: Float[Tensor, "*values v"], support: Support, start: int = 0
    ) -> KVCache:
        return KVCache(self._prepare_keys(support.zero_masked(key), start), support.zero_masked(value), support)

    def read(
        self,
        query: Float[Tensor, "*queries d"],
        memory: KVCache,
        support: Support | None = None,
        state: AttentionState | None = None,
    ) -> tuple[Float[Tensor, "..."], AttentionState | None]:
        support = memory.support if support is None else support
        support.check(query, memory.key, memory.value)
        memory = memory.zero_masked(support)
        return self._attend(query, memory, self._narrow(query, memory.key, support), state)

    def start(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: Support
    ) -> AttentionState:
        if not support.is_ordered:
            raise ValueError("the nodes of a graph have no order: steps are of sequences")
        nothing = query.new_zeros(*query.shape[:2], 1, key.shape[2])
        return AttentionState(weights=self.normalizer.start(nothing), total=nothing, of_score=self.score.start(key))

    def follow(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b g n dk"],
        value: Float[Tensor, "b g n v"],
        support: DenseSupport,
        memory: KVCache | None = None,
    ) -> tuple[Float[Tensor, "b h n v"], KVCache]:
        here = support.select_last_keys(key.shape[2])
        here.check(query, key, value)
        start = 0 if memory is None else memory.length
        support = support.advance_to(start)  # these queries follow as many others as there are keys
        later = self.prepare(
            zero_masked_nonfinite(key, here), zero_masked_nonfinite(value, here), DenseSupport(), start
        )
        memory = replace(later, support=support) if memory is None else memory.append(later, support)
        state = memory.attention
        if self.is_stateful and not start:
            state = self.start(query, memory.key, support)
        elif self.is_stateful and state is None:
            raise ValueError(
                "the weights depend on those of earlier positions, which this memory does not have: begin with the "
                "first position and no memory"
            )
        context, state = self._attend(query, memory, self._narrow(query, memory.key, support), state)
        return context, replace(memory, attention=state)

    def set_position(self, position: Position) -> None:
        if position.traits.rotates and not self.score.traits.rotation_invariant:
            raise ValueError(
                f"{type(position).__name__} rotates queries and keys, and {type(self.score).__name__} depends on more "
                "than the angle between them: it would depend on absolute positions. Use a position that adds to "
                "scores (ALiBi, T5Bias, Shaw, TransformerXL), none, or a score of products (dot, scaled dot, cosine)"
            )
        self.position = position

    def check_layout(self, layout: type, user: str) -> None:
        if self.restrict is not None:
            check_layout(self.restrict, layout, user)
            user = type(self.restrict).__name__
            layout = self.restrict.traits.output_layout or layout
        for part in (self.score, self.normalizer, self.position):
            if part is not None:
                check_layout(part, layout, user)

    @property
    def is_content_based(self) -> bool:
        narrows = self.restrict is not None and self.restrict.traits.content_based
        return narrows or self.normalizer.traits.content_based

    @property
    def is_stateful(self) -> bool:
        return self.score.traits.stateful or self.normalizer.traits.stateful

    @property
    def is_position_dependent(self) -> bool:
        return self.position is not None or self.restrict is not None

    @property
    def is_parallel(self) -> bool:
        """True if several queries can be computed at once, False if they are computed one after another."""
        return self.score.traits.parallel and self.normalizer.traits.parallel

    def _attend(
        self, query: Tensor, memory: KVCache, support: Support, state: AttentionState | None
    ) -> tuple[Tensor, AttentionState | None]:
        """Computes c_i = sum_j w_ij v_j: with a fused kernel if there is one, otherwise with stored weights.

        The shapes beside the lines are those of a `DenseSupport`; other layouts keep their pairs in other forms.

        Args:
            support: The support, narrowed by `restrict`.
        """
        key, value = memory.key, memory.value  # (b,g,k,d) (b,g,k,v)
        query = self._turn(support.zero_blind_queries(query, key), key, support)  # (b,h,q,d)
        kernel = None if state is not None or self.probe.wants_gradient else fused.find(self, support)
        if kernel is not None:
            return self._run_kernel(kernel, query, key, value, support), None
        heads = query.shape[1]
        key, value = repeat_kv(key, heads), repeat_kv(value, heads)  # (b,h,k,d) (b,h,k,v)
        if state is not None:
            state.check(query.shape[2])
        if state is None or self.is_parallel or state.rows == query.shape[2]:
            weights, state = self._weigh(query, key, support, state)  # (b,h,q,k)
        else:
            weights, state = self._weigh_stepwise(query, key, support, state)
        if self.probe.is_open:
            self.probe.emit(weights.weights, support, **weights.extras())
        dropped = self.dropout(weights.weights, support, value)  # (b,h,q,k)
        context = support.combine(dropped, value)  # (b,h,q,v)
        if self.position is not None:
            context = self.position.add_context(context, dropped, query, key, support)
        return context, state

    def _weigh(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None
    ) -> tuple[_Weights, AttentionState | None]:
        """Computes the weights, drawn ones for hard attention, and the state after these queries."""
        weights, alignment = self._compute_weights(query, key, support, state)
        probabilities = None
        if self.normalizer.traits.hard:
            weights, probabilities = self.normalizer.draw(weights, support), weights
        if state is not None:
            state = state.step(support.to_dense(weights, query.shape[2], key.shape[2]), alignment)
        return _Weights(weights, alignment, probabilities), state

    def _compute_weights(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None
    ) -> tuple[Tensor, Tensor | None]:
        """Returns w_i = normalize(s_i), and the alignment for the next step if it differs from the weights."""
        # s_ij = score(q_i, k_j) + b_ij
        scores = self.score(query, self.score.wrap(key), support, state)  # (b,h,q,k)
        bias = self._bias(query, key, support)
        scores = scores if bias is None else scores + bias
        # w_i = normalize(s_i)
        weights = self.normalizer(scores, support, state)  # (b,h,q,k)
        return weights if isinstance(weights, NormalizerOutput) else (weights, None)

    def _weigh_stepwise(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState
    ) -> tuple[_Weights, AttentionState | None]:
        """Computes `_weigh` one query after another, each with the state after the one before it."""
        queries = query.shape[2]
        if not queries:
            return _Weights(support.zeros(query, key)), state
        if not isinstance(support, DenseSupport):  # in other layouts the pairs of one query are not a row
            kind = type(support).__name__
            raise ValueError(
                f"{type(self.score).__name__} computes one query at a time, which {kind} cannot: call it for each query"
            )
        steps: list[_Weights] = []
        after: AttentionState | None = state
        for number in range(queries):
            one = slice(number, number + 1)
            weights, after = self._weigh(query[:, :, one], key, support.select_queries(one, queries), after)
            steps.append(weights)
        return _Weights.concatenate(steps), after

    def _run_kernel(self, kernel: fused.Kernel, query: Tensor, key: Tensor, value: Tensor, support: Support) -> Tensor:
        """Computes the context with a fused kernel, which has no weights; a recorder's are computed beside it."""
        heads = query.shape[1]
        if kernel is not fused.dot_softmax or key.shape[1] != value.shape[1]:
            key, value = repeat_kv(key, heads), repeat_kv(value, heads)
        if self.probe.is_open:
            self._emit_weights(query, repeat_kv(key, heads), support)
        return kernel(self, query, key, value, support, self._bias(query, key, support))

    @torch.no_grad()
    def _emit_weights(self, query: Tensor, key: Tensor, support: Support) -> None:
        """Computes the weights for a recorder; the fused kernel does not store them.

        Weights of all pairs of a dense support are not computed if no recorder has room for them.
        """
        pairs = query.shape[:3].numel() * key.shape[2] if isinstance(support, DenseSupport) else 0
        if self.probe.wants_all and self.probe.affords(pairs * query.element_size(), query.shape[1]):
            self.probe.emit(self._compute_weights(query, key, support, None)[0], support)
        elif self.probe.wants_rows:
            self.probe.emit_rows(
                lambda of, part: self._compute_weights(query[:, :, of], key, part, None)[0], query, key, support
            )

    def _bias(self, query: Tensor, key: Tensor, support: Support) -> Tensor | None:
        """Returns the b_ij of the position."""
        if self.position is None:
            return None
        return self.position.bias(query, key, support, self.score.scale(query.shape[-1]))

    def _prepare_keys(self, key: Float[Tensor, "..."], start: int) -> Float[Tensor, "..."]:
        """Returns the keys as the score takes them, without their type, so that a memory can append and select."""
        key = key if self.position is None else self.position.turn(key, start)
        if not self.score.prepares_keys:
            return key
        prepared = self.score.prepare(key)
        if not isinstance(prepared, PreparedKeys):
            raise TypeError(f"{type(self.score).__name__}.prepare must return PreparedKeys(...), which forward takes")
        return prepared.tensor

    def _narrow(self, query: Tensor, key: Tensor, support: Support) -> Support:
        return support if self.restrict is None else self.restrict(query, key, support)

    def _turn(self, query: Tensor, key: Tensor, support: Support) -> Tensor:
        return query if self.position is None else self.position.turn_query(query, key, support)


class _Weights(NamedTuple):
    """The weights of some queries, and what a map has beside them."""

    weights: Tensor
    alignment: Tensor | None = None
    probabilities: Tensor | None = None

    @classmethod
    def concatenate(cls, steps: Sequence[_Weights]) -> _Weights:
        """Returns the weights of consecutive queries as those of one call."""
        weights, *others = (None if column[0] is None else torch.cat(column, 2) for column in zip(*steps, strict=True))
        assert weights is not None
        return cls(weights, *others)

    def extras(self) -> dict[str, Tensor]:
        others = {"alignment": self.alignment, "probabilities": self.probabilities}
        return {name: value for name, value in others.items() if value is not None}


def _check_kind(part: object, kind: type) -> None:
    if not isinstance(part, kind):
        name = type(part).__name__
        raise TypeError(f"{name} is no {kind.__name__}: derive it from zoo.attention.{kind.__name__}")
