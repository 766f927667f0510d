"""Attention is four choices: score a pair, limit its support, normalise, combine.

`Attend` puts injected mechanisms together and owns what they share: dropout of weights, the Tap through which maps are
observed, decoder memory, and the choice of a fused kernel where one computes exactly this combination.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.checks import check_position, check_serves
from zoo.attention.dropout import DropWeights
from zoo.attention.kernels import fused
from zoo.attention.memory import Memory
from zoo.attention.observing.record import Tap
from zoo.attention.positions.relative import Position
from zoo.attention.ranges import Rate
from zoo.attention.scores.pairwise import prepared
from zoo.attention.state import Aligned, AttentionState
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.support import Support


class Score(Protocol):
    """One number for every pair and head.

    A score that stays the same when query and key are turned alike says so: `by_angle = True`. It may also have
    `prepare(key) -> key`: what depends on the keys alone, once a sequence; `__call__` takes the result as `key`. One
    that scores by the state says so (`remembers = True`), and whether it can score several queries at once all the same
    (`batchable`).
    """

    def __call__(self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None) -> Tensor: ...


class Normaliser(Protocol):
    """From scores to weights, over the keys that the support permits.

    One that draws has a method `draw(probabilities, support) -> weights`; its `__call__` then gives the probabilities.
    One whose memory is not its weights returns both, as `Aligned`; one that does not begin at zeros has a `start`. One
    that takes no notice of scores says so: `reads_scores = False`. `remembers` and `batchable` are as for a score.
    """

    def __call__(self, scores: Tensor, support: Support, state: AttentionState | None) -> Tensor | Aligned: ...


class Restrict(Protocol):
    """A support of its own for a site: a narrower one, laid out as it is computed.

    One that looks at shapes alone says so: `reads_queries = False`.
    """

    def __call__(self, query: Tensor, key: Tensor, support: Support) -> Support: ...


class Attend(nn.Module):
    """score -> normalise -> combine.

    Args:
        score: What a query thinks of a key.
        normalise: How scores become weights.
        restrict: Narrows the support that the site is given (a window, say); None takes it as it is.
        dropout: Probability with which a weight is dropped in training, after normalisation; or another kind of it.
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
        self.tap = Tap()

    def place(self, position: Position) -> None:
        """Gives the site a sense of where its queries and keys are."""
        check_position(self.score, position)
        self.position = position

    @property
    def compares(self) -> bool:
        """Whether anything depends on what stands in queries and keys; where not, nobody need project them."""
        narrows = self.restrict is not None and getattr(self.restrict, "reads_queries", True)
        return narrows or getattr(self.normalise, "reads_scores", True)

    def require(self, support: type, user: str, *, of_one_graph: bool = False) -> None:
        """Refuses, at start-up, a mechanism that cannot work on this support.

        Args:
            of_one_graph: Keys are the queries themselves, the nodes of a graph.
        """
        if self.restrict is not None:
            check_serves(self.restrict, support, user)
            support = self.restrict.gives
            user = type(self.restrict).__name__
        for part in (self.score, self.normalise, self.position):
            check_serves(part, support, user)
            if getattr(part, "needs_one_graph", False) and not of_one_graph:
                raise ValueError(
                    f"{type(part).__name__} works on the edges of one graph; {user} has two sets of things"
                )

    @property
    def remembers(self) -> bool:
        """Whether what a query attends to depends on what the queries before it attended to."""
        return any(getattr(part, "remembers", False) for part in (self.score, self.normalise))

    @property
    def batchable(self) -> bool:
        """Whether several queries are computed at once; those of others are taken one after the other."""
        return all(getattr(part, "batchable", True) for part in (self.score, self.normalise))

    def prepare(
        self, key: Float[Tensor, "*keys dk"], value: Float[Tensor, "*values v"], support: Support, start: int = 0
    ) -> Memory:
        """All that depends on keys and values alone, once per sequence: `read` then looks at them step by step.

        Args:
            support: Keys that it forbids to every query become zeros, and so do their values.
            start: The position of the first of these keys, where others came before.
        """
        return Memory(self._ready(support.clean(key), start), support.clean(value), support)

    def start(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"], support: Support
    ) -> AttentionState:
        """The memory before the first step. A normaliser with a memory of its own says how it begins."""
        if not support.is_ordered:
            raise ValueError("the nodes of a graph have no order: steps are of sequences")
        nothing = query.new_zeros(*query.shape[:2], 1, key.shape[2])
        begin = getattr(self.normalise, "start", None)
        return AttentionState(weights=nothing if begin is None else begin(nothing), total=nothing)

    def weights(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        support: Support,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "..."]:
        """The weights, written out, before dropout; or what they are drawn from, where the normaliser draws."""
        support, key = self._restricted(query, key, support), per_query_head(self._ready(key, 0), query.shape[1])
        return self._weights(self._turned(query, key, support), key, support, state)

    def forward(
        self,
        query: Float[Tensor, "*queries d"],
        key: Float[Tensor, "*keys dk"],
        value: Float[Tensor, "*values v"],
        support: Support,
        state: AttentionState | None = None,
    ) -> tuple[Float[Tensor, "..."], AttentionState | None]:
        """Shapes are the support's: see `zoo.attention.supports.support`.

        Keys and values may have fewer heads than queries: each then serves a group of neighbouring query heads.

        Args:
            state: What `start` or the call before returned: several queries are then steps that follow one another.

        Returns:
            The context of each query, and the state after this step (None if none was given).
        """
        support.check(query, key, value)
        support = self._restricted(query, key, support)
        return self._combined(query, self.prepare(key, value, support), support, state)

    def read(
        self,
        query: Float[Tensor, "*queries d"],
        memory: Memory,
        support: Support | None = None,
        state: AttentionState | None = None,
    ) -> tuple[Float[Tensor, "..."], AttentionState | None]:
        """`forward` for keys and values that were prepared before.

        Args:
            support: That of the memory if not given; for another one keys and values are cleaned anew in every call.
        """
        support = memory.support if support is None else support
        support.check(query, memory.key, memory.value)
        memory = memory.cleaned(support)
        return self._combined(query, memory, self._restricted(query, memory.key, support), state)

    def follow(
        self,
        query: Float[Tensor, "b h n d"],
        key: Float[Tensor, "b g n dk"],
        value: Float[Tensor, "b g n v"],
        support: DenseSupport,
        memory: Memory | None = None,
    ) -> tuple[Float[Tensor, "b h n v"], Memory]:
        """Causal self-attention of the positions that follow those in the memory.

        Args:
            support: Of these queries and all keys so far.

        Returns:
            The context of each query, and the memory with their keys and values.
        """
        here = support.of_last_keys(key.shape[2])
        here.check(query, key, value)
        start = 0 if memory is None else memory.length
        later = self.prepare(of_numbers(key, here), of_numbers(value, here), DenseSupport(), start)
        memory = replace(later, support=support) if memory is None else memory.append(later, support)
        state = memory.attention
        if self.remembers and not start:
            state = self.start(query, memory.key, support)
        elif self.remembers and state is None:
            raise ValueError(
                "what is attended to depends on what the positions before attended to, which this memory does not "
                "know: begin with the first position and no memory"
            )
        context, state = self._combined(query, memory, self._restricted(query, memory.key, support), state)
        return context, replace(memory, attention=state)

    def _combined(
        self, query: Tensor, memory: Memory, support: Support, state: AttentionState | None
    ) -> tuple[Tensor, AttentionState | None]:
        """Of keys and values that are clean, on the support as the site narrows it."""
        key, value = memory.key, memory.value
        query = self._turned(support.clean_queries(query, key), key, support)
        kernel = None if state is not None or self.tap.wants_gradient else fused.find(self, support)
        if kernel is not fused.dot_softmax or key.shape[1] != value.shape[1]:
            key, value = per_query_head(key, query.shape[1]), per_query_head(value, query.shape[1])
        if kernel is not None:
            if self.tap.is_open:
                self._show(query, per_query_head(key, query.shape[1]), support)
            bias = self._bias(query, key, support)
            return kernel(self, query, key, value, support, bias), None
        weights, probabilities, state = self._weighed(query, key, support, state)
        if self.tap.is_open:
            self.tap.emit(weights, support, probabilities=probabilities)
        dropped = self.dropout(weights, support, value)
        context = support.combine(dropped, value)
        if self.position is not None:
            context = self.position.add_context(context, dropped, query, key, support)
        return context, state

    def _weighed(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None
    ) -> tuple[Tensor, Tensor | None, AttentionState | None]:
        """The weights, what they were drawn from, and the state after them."""
        queries = query.shape[2]
        if state is not None:
            state.check(queries)
        if state is None or self.batchable or queries == state.rows:
            return self._weighed_at_once(query, key, support, state)
        if not queries:
            return support.zeros(query, key), None, state
        if not isinstance(support, DenseSupport):
            kind = type(support).__name__
            raise ValueError(f"{type(self.score).__name__} goes query by query, which {kind} does not: give one a call")
        steps, drawn_from = [], []
        for number in range(queries):
            one = slice(number, number + 1)
            weights, probabilities, state = self._weighed_at_once(
                query[:, :, one], key, support.of_queries(one, queries), state
            )
            steps.append(weights)
            drawn_from += [] if probabilities is None else [probabilities]
        return torch.cat(steps, 2), torch.cat(drawn_from, 2) if drawn_from else None, state

    def _weighed_at_once(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None
    ) -> tuple[Tensor, Tensor | None, AttentionState | None]:
        weights, alignment = self._aligned(query, key, support, state)
        probabilities = None
        if hasattr(self.normalise, "draw"):
            weights, probabilities = self.normalise.draw(weights, support), weights
        if state is not None:
            state = state.step(support.to_dense(weights, query.shape[2], key.shape[2]), alignment)
        return weights, probabilities, state

    def _ready(self, key: Float[Tensor, "..."], start: int) -> Float[Tensor, "..."]:
        """Keys as the score takes them."""
        return prepared(self.score, key if self.position is None else self.position.turn(key, start))

    def _restricted(self, query: Tensor, key: Tensor, support: Support) -> Support:
        return support if self.restrict is None else self.restrict(query, key, support)

    def _turned(self, query: Tensor, key: Tensor, support: Support) -> Tensor:
        return query if self.position is None else self.position.turn_query(query, key, support)

    def _bias(self, query: Tensor, key: Tensor, support: Support) -> Tensor | None:
        if self.position is None:
            return None
        scale = self.score.scale(query.shape[-1]) if hasattr(self.score, "scale") else 1.0
        return self.position.bias(query, key, support, scale)

    def _weights(self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None) -> Tensor:
        return self._aligned(query, key, support, state)[0]

    def _aligned(
        self, query: Tensor, key: Tensor, support: Support, state: AttentionState | None
    ) -> tuple[Tensor, Tensor | None]:
        scores = self.score(query, key, support, state)
        bias = self._bias(query, key, support)
        scores = scores if bias is None else scores + bias
        weights = self.normalise(scores, support, state)
        return weights if isinstance(weights, Aligned) else (weights, None)

    @torch.no_grad()
    def _show(self, query: Tensor, key: Tensor, support: Support) -> None:
        """The weights of a fused site, beside the kernel that does without them."""
        if self.tap.wants_all:
            self.tap.emit(self._weights(query, key, support, None), support)
        elif self.tap.wants_rows:
            self.tap.emit_rows(lambda of, part: self._weights(query[:, :, of], key, part, None), query, key, support)


@dataclass(frozen=True)
class AttendFactory:
    """`(dim, heads) -> Attend`: what a net is given, so that every site has its own parameters.

    Args:
        score, normalise, restrict: Classes or partials; each is given those of `dim` and `heads` that it asks for.
        dropout: Of the weights: a probability, or a class or partial of another kind of dropout.
    """

    score: Callable[..., Any]
    normalise: Callable[..., Any]
    restrict: Callable[..., Any] | None = None
    dropout: Rate | Callable[..., DropWeights] = 0.0

    def __call__(self, dim: int, heads: int) -> Attend:
        sizes = {"dim": dim, "heads": heads}
        return Attend(
            sized(self.score, sizes),
            sized(self.normalise, sizes),
            restrict=None if self.restrict is None else sized(self.restrict, sizes),
            dropout=self.dropout() if callable(self.dropout) else self.dropout,
        )


def of_numbers(x: Float[Tensor, "b g n d"], support: DenseSupport) -> Float[Tensor, "b g n d"]:
    """Zeros for what is forbidden and not a number; the rest stays, because later queries may be permitted it."""
    mask = support.permitted
    if mask is None or mask.shape[0] not in (1, x.shape[0]) or mask.shape[3] not in (1, x.shape[2]):
        return x  # a mask that does not fit is refused where it meets queries
    cleaned = support.clean(x)
    return x if cleaned is x else torch.where(x.isfinite(), x, cleaned)


def per_query_head(x: Float[Tensor, "..."], heads: int) -> Float[Tensor, "..."]:
    """Keys or values of fewer heads, each repeated for the query heads that it serves; heads are axis 1 everywhere."""
    if x.shape[1] == heads:
        return x
    return x.unsqueeze(2).expand(-1, -1, heads // x.shape[1], *x.shape[2:]).flatten(1, 2)


@dataclass(frozen=True)
class SiteFactory:
    """`(dim, heads) -> site`, for a mechanism that scores, normalises and combines in one.

    Args:
        site: A class or partial; given those of `dim` and `heads` that it asks for.
    """

    site: Callable[..., Any]

    def __call__(self, dim: int, heads: int) -> Any:
        return sized(self.site, {"dim": dim, "heads": heads})


def sized(part: Callable[..., Any], sizes: dict[str, int]) -> Any:
    """Calls a class or partial with those of the sizes that it asks for."""
    asked = inspect.signature(part).parameters
    return part(**{name: size for name, size in sizes.items() if name in asked})
