"""Attention is four choices: score a pair, limit its support, normalise, combine.

    s_ij = score(q_i, k_j) + b_ij     for every pair (i, j) of the support; b is the bias of a position, if there is one
    w_i  = normalise(s_i)             over the keys that query i may see
    c_i  = sum_j w_ij v_j             the context of query i

With `ScaledDot` and `Softmax` this is softmax(Q K^T / sqrt(d)) V (Vaswani et al. 2017, eq. 1); with `Additive` and
`Softmax` it is the attention of Bahdanau et al. 2015 (appendix A.1.2). `Attend` puts injected mechanisms together and
owns what they share: dropout of weights, the Tap through which maps are observed, decoder memory, and the choice of a
fused kernel where one computes exactly this combination.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.attention.checks import check_position, check_serves
from zoo.attention.dropout import DropWeights
from zoo.attention.kernels import fused
from zoo.attention.memory import Memory, of_numbers, per_query_head
from zoo.attention.observing.record import Tap
from zoo.attention.positions.relative import Position
from zoo.attention.scores.pairwise import prepared
from zoo.attention.state import Aligned, AttentionState
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.support import Support


class Score(Protocol):
    """Computes s_ij, one number for every pair and head.

    Optional attributes: `prepare(key) -> key` computes, once a sequence, whatever depends on the keys alone, and
    `__call__` takes the result as `key`. `start(key) -> Any` computes, before the first step of a decoder, what does
    not change from step to step; steps find it in `state.of_score`, unless later keys have come. `by_angle = True`: the
    score does not change when query and key are turned by the same angle, so that rotary positions are possible.
    `remembers = True`: the score depends on the state; `batchable = False`: it then takes one query at a time.
    `reaches_last(weights, support)`, of a score that narrows what a query sees by previous weights: whether a query
    after these sees the last key.
    """

    def __call__(self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None) -> Tensor: ...


class Normaliser(Protocol):
    """Computes the weights w_i of query i from its scores, over the keys that the support permits.

    Optional attributes: `draw(probabilities, support) -> weights` of hard attention, whose `__call__` returns the
    probabilities. `start(zeros)` returns the alignment before the first step, if it is not zero. A normaliser whose
    next step needs an alignment that differs from its weights returns `Aligned`. `scans = True`: in evaluation a query
    reads no key behind the one at which it stops, and none before the previous query's but for the last `reads_before`;
    `waits(alignment)` says whether it has stopped, and `skip(state)` starts it at the last key if it has not.
    `reads_scores = False`: the weights do not depend on the scores. `remembers` and `batchable` are as for a score.
    """

    def __call__(self, scores: Tensor, support: Support, state: AttentionState | None) -> Tensor | Aligned: ...


class Restrict(Protocol):
    """Narrows the support of a site, and chooses the layout of its pairs.

    Optional attribute: `reads_queries = False` if the result depends on shapes alone.
    """

    def __call__(self, query: Tensor, key: Tensor, support: Support) -> Support: ...


class Attend(nn.Module):
    """c_i = sum_j w_ij v_j, w_i = normalise(score(q_i, k_j) + b_ij): one attention site.

    Args:
        score: Computes s_ij; a `Score`.
        normalise: Computes w_i from s_i; a `Normaliser`.
        restrict: Narrows the support that the site is given, to a window for example; a `Restrict`. Default: None.
        dropout: Probability that a weight is dropped in training, after normalisation; or a `DropWeights`.
    """

    score: Any
    normalise: Any
    position: Position | None

    def __init__(
        self,
        score: nn.Module,
        normalise: nn.Module,
        *,
        restrict: Any = None,
        dropout: float | DropWeights = 0.0,
    ) -> None:
        super().__init__()
        self.score = score
        self.normalise = normalise
        self.restrict = restrict
        self.dropout = dropout if isinstance(dropout, DropWeights) else DropWeights(dropout)
        self.position = None
        self.ends_texts = False
        """Whether a text ends where a query passes all keys, and nowhere else; for a task that trains this."""
        self.tap = Tap()

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
        support.check(query, key, value)
        support = self._restricted(query, key, support)
        return self._combined(query, self.prepare(key, value, support), support, state)

    def weights(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        """Returns the weights before dropout; for hard attention the probabilities that they are drawn from."""
        support, key = self._restricted(query, key, support), per_query_head(self._ready(key, 0), query.shape[1])
        return self._weights(self._turned(query, key, support), key, support, state)

    def prepare(
        self, key: Float[Tensor, "*keys dk"], value: Float[Tensor, "*values v"], support: Support, start: int = 0
    ) -> Memory:
        """Computes, once for a sequence, whatever depends on keys and values alone; `read` takes the result.

        Args:
            support: Keys and values that it forbids to every query become zero.
            start: Position of the first key.
        """
        return Memory(self._ready(support.clean(key), start), support.clean(value), support)

    def read(
        self,
        query: Float[Tensor, "*queries d"],
        memory: Memory,
        support: Support | None = None,
        state: AttentionState | None = None,
    ) -> tuple[Float[Tensor, "..."], AttentionState | None]:
        """Attends like `forward`, to keys and values that `prepare` has prepared.

        Args:
            support: Default: the support of the memory. With another one, every call cleans keys and values again.
        """
        support = memory.support if support is None else support
        support.check(query, memory.key, memory.value)
        memory = memory.cleaned(support)
        return self._combined(query, memory, self._restricted(query, memory.key, support), state)

    def start(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: Support
    ) -> AttentionState:
        """Returns the state before the first step of a decoder."""
        if not support.is_ordered:
            raise ValueError("the nodes of a graph have no order: steps are of sequences")
        nothing = query.new_zeros(*query.shape[:2], 1, key.shape[2])
        begin, prepare = (getattr(part, "start", None) for part in (self.normalise, self.score))
        return AttentionState(
            weights=nothing if begin is None else begin(nothing),
            total=nothing,
            of_score=None if prepare is None else prepare(key),
        )

    def follow(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b g n dk"],
        value: Float[Tensor, "b g n v"],
        support: DenseSupport,
        memory: Memory | None = None,
    ) -> tuple[Float[Tensor, "b h n v"], Memory]:
        """Computes causal self-attention for the positions that follow those in the memory.

        Args:
            support: Support of these queries and of all keys so far.

        Returns:
            The context of each query, and the memory with the new keys and values.
        """
        here = support.of_last_keys(key.shape[2])
        here.check(query, key, value)
        start = 0 if memory is None else memory.length
        support = support.at_step(start)  # these queries follow as many others as there are keys
        later = self.prepare(of_numbers(key, here), of_numbers(value, here), DenseSupport(), start)
        memory = replace(later, support=support) if memory is None else memory.append(later, support)
        state = memory.attention
        if self.remembers and not start:
            state = self.start(query, memory.key, support)
        elif self.remembers and state is None:
            raise ValueError(
                "the weights depend on those of earlier positions, which this memory does not have: begin with the "
                "first position and no memory"
            )
        context, state = self._combined(query, memory, self._restricted(query, memory.key, support), state)
        return context, replace(memory, attention=state)

    def waits(self, state: AttentionState) -> Bool[Tensor, "b r"]:
        """Returns True where the last query found no key to stop at, among the keys so far, in one of its heads.

        If there are later keys, the query has no result yet: append them to the memory that it read (`extend`) and ask
        again. The state that it returned is for the case that there are none.
        """
        if not self.streams:
            raise ValueError("these weights depend on all keys: no query can be answered before the last one is there")
        found: Tensor = self.normalise.waits(state.weights if state.alignment is None else state.alignment)
        return found.any(1)

    def skip(self, memory: Memory) -> Memory:
        """Returns the memory for a query that `waits` and will be asked again: it has passed all keys of this one.

        The query must be the same then, and its state that before it was first asked. A score that remembers is asked
        for all keys again.
        """
        if memory.attention is None or not memory.length or not self._forgets(memory.attention):
            return memory
        return replace(memory, attention=self.normalise.skip(memory.attention))

    def count_unread(self, memory: Memory) -> int:
        """Returns the number of first keys that no later query reads."""
        if memory.attention is None or not memory.length or not self._forgets(memory.attention):
            return 0
        state = memory.attention
        start = (state.weights if state.alignment is None else state.alignment).argmax(-1)
        before: int = self.normalise.reads_before
        return max(0, int(start.min()) - before)

    def reaches_last(self, memory: Memory) -> Bool[Tensor, "b r"] | None:
        """Returns True where the next query sees the last key in one of its heads; None: every query does."""
        reaches = getattr(self.score, "reaches_last", None)
        if reaches is None or memory.attention is None:
            return None
        found = reaches(memory.attention.weights, memory.support)
        return None if found is None else found.any(1)

    def passed(self, memory: Memory) -> Bool[Tensor, "b r"] | None:
        """Returns True where the last query passed all keys in all of its heads, if `ends_texts`; None otherwise."""
        if not self.ends_texts or memory.attention is None or memory.attention.alignment is None:
            return None
        found: Tensor = self.normalise.waits(memory.attention.alignment)
        return found.all(1)

    def place(self, position: Position) -> None:
        """Sets the position of queries and keys."""
        check_position(self.score, position)
        self.position = position

    def require(self, support: type, user: str, *, of_one_graph: bool = False) -> None:
        """Refuses, at start-up, a mechanism that cannot work on this support.

        Args:
            of_one_graph: True if queries and keys are the nodes of one graph.
        """
        if self.restrict is not None:
            check_serves(self.restrict, support, user)
            support = self.restrict.gives
            user = type(self.restrict).__name__
        for part in (self.score, self.normalise, self.position):
            check_serves(part, support, user)
            if getattr(part, "needs_one_graph", False) and not of_one_graph:
                raise ValueError(
                    f"{type(part).__name__} works on the edges of one graph; {user} has different queries and keys"
                )

    @property
    def compares(self) -> bool:
        """True if the result depends on the values of queries and keys; otherwise they need no projections."""
        narrows = self.restrict is not None and getattr(self.restrict, "reads_queries", True)
        return narrows or getattr(self.normalise, "reads_scores", True)

    @property
    def remembers(self) -> bool:
        """True if the weights of a query depend on the weights of the queries before it."""
        return any(getattr(part, "remembers", False) for part in (self.score, self.normalise))

    @property
    def streams(self) -> bool:
        """True if a query reads no key behind the one at which it stops, so that later keys do not change its result.

        This holds in evaluation, of mechanisms that move over the keys from the first to the last.
        """
        return not self.training and getattr(self.normalise, "scans", False) and not self.numbers_queries

    @property
    def numbers_queries(self) -> bool:
        """True if the result of a query may depend on its number among the queries, through a position or a window."""
        return self.position is not None or self.restrict is not None

    @property
    def batchable(self) -> bool:
        """True if several queries can be computed at once, False if they are computed one after another."""
        return all(getattr(part, "batchable", True) for part in (self.score, self.normalise))

    def _forgets(self, state: AttentionState) -> bool:
        """Whether a query reads of those before it only where they stopped, which is one place: it has one head."""
        return self.streams and state.weights.shape[1] == 1 and not getattr(self.score, "remembers", False)

    def _combined(
        self, query: Tensor, memory: Memory, support: Support, state: AttentionState | None
    ) -> tuple[Tensor, AttentionState | None]:
        """Computes c_i = sum_j w_ij v_j: with a fused kernel if there is one, otherwise with stored weights.

        Args:
            support: The support, narrowed by `restrict`.
        """
        key, value = memory.key, memory.value
        query = self._turned(support.clean_queries(query, key), key, support)
        kernel = None if state is not None or self.tap.wants_gradient else fused.find(self, support)
        if kernel is not fused.dot_softmax or key.shape[1] != value.shape[1]:
            key, value = per_query_head(key, query.shape[1]), per_query_head(value, query.shape[1])
        if kernel is not None:
            if self.tap.is_open:
                self._show(query, per_query_head(key, query.shape[1]), support)
            return kernel(self, query, key, value, support, self._bias(query, key, support)), None
        # w_i = normalise(s_i)
        weights, beside, state = self._weighed(query, key, support, state)
        if self.tap.is_open:
            self.tap.emit(weights, support, **beside)
        # c_i = sum_j w_ij v_j
        dropped = self.dropout(weights, support, value)
        context = support.combine(dropped, value)
        if self.position is not None:
            context = self.position.add_context(context, dropped, query, key, support)
        return context, state

    def _aligned(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None
    ) -> tuple[Tensor, Tensor | None]:
        """Returns w_i = normalise(s_i), and the alignment for the next step if it differs from the weights."""
        # s_ij = score(q_i, k_j) + b_ij
        scores = self.score(query, key, support, state)
        bias = self._bias(query, key, support)
        scores = scores if bias is None else scores + bias
        # w_i = normalise(s_i)
        weights = self.normalise(scores, support, state)
        return weights if isinstance(weights, Aligned) else (weights, None)

    def _bias(self, query: Tensor, key: Tensor, support: Support) -> Tensor | None:
        if self.position is None:
            return None
        scale = self.score.scale(query.shape[-1]) if hasattr(self.score, "scale") else 1.0
        return self.position.bias(query, key, support, scale)

    def _weighed(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None
    ) -> tuple[Tensor, dict[str, Tensor], AttentionState | None]:
        """Returns the weights, what a map has beside them, and the state after these queries."""
        queries = query.shape[2]
        if state is not None:
            state.check(queries)
        if state is None or self.batchable or queries == state.rows:
            return self._weighed_at_once(query, key, support, state)
        if not queries:
            return support.zeros(query, key), {}, state
        if not isinstance(support, DenseSupport):  # in other layouts the pairs of one query are not a row
            kind = type(support).__name__
            raise ValueError(
                f"{type(self.score).__name__} computes one query at a time, which {kind} cannot: call it for each query"
            )
        steps = []
        for number in range(queries):
            one = slice(number, number + 1)
            weights, beside, state = self._weighed_at_once(
                query[:, :, one], key, support.of_queries(one, queries), state
            )
            steps.append({"weights": weights, **beside})
        found = {name: torch.cat([step[name] for step in steps], 2) for name in steps[0]}
        return found.pop("weights"), found, state

    def _weighed_at_once(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None
    ) -> tuple[Tensor, dict[str, Tensor], AttentionState | None]:
        weights, alignment = self._aligned(query, key, support, state)
        beside = {} if alignment is None else {"alignment": alignment}
        if hasattr(self.normalise, "draw"):
            weights, beside["probabilities"] = self.normalise.draw(weights, support), weights
        if state is not None:
            state = state.step(support.to_dense(weights, query.shape[2], key.shape[2]), alignment)
        return weights, beside, state

    def _ready(self, key: Float[Tensor, "..."], start: int) -> Float[Tensor, "..."]:
        """Returns the keys as the score takes them."""
        return prepared(self.score, key if self.position is None else self.position.turn(key, start))

    def _restricted(self, query: Tensor, key: Tensor, support: Support) -> Support:
        return support if self.restrict is None else self.restrict(query, key, support)

    def _turned(self, query: Tensor, key: Tensor, support: Support) -> Tensor:
        return query if self.position is None else self.position.turn_query(query, key, support)

    def _weights(self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None) -> Tensor:
        return self._aligned(query, key, support, state)[0]

    @torch.no_grad()
    def _show(self, query: Tensor, key: Tensor, support: Support) -> None:
        """Computes the weights for a recorder; the fused kernel does not store them.

        Weights of all pairs of a dense support are not computed if no recorder has room for them.
        """
        pairs = query.shape[:3].numel() * key.shape[2] if isinstance(support, DenseSupport) else 0
        if self.tap.wants_all and self.tap.affords(pairs * query.element_size(), query.shape[1]):
            self.tap.emit(self._weights(query, key, support, None), support)
        elif self.tap.wants_rows:
            self.tap.emit_rows(lambda of, part: self._weights(query[:, :, of], key, part, None), query, key, support)
