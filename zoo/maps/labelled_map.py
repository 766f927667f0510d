"""The map of one example: an `AttentionMap` without batch and padding, and with labels along its axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.errors import did_you_mean


@dataclass(frozen=True, eq=False)
class Pairs:
    """The permitted pairs of one head, as a list, for dense maps and edges, with and without steps.

    Attributes:
        query: Query of each pair, as an index into the flattened query axes.
        key: Key of each pair.
        weights: Weight of each pair.
        gold: Mask of the pairs where attention belongs.
        queries: Number of queries, including those without a key.
    """

    query: Int[Tensor, " p"]
    key: Int[Tensor, " p"]
    weights: Float[Tensor, " p"]
    gold: Bool[Tensor, " p"] | None
    queries: int

    def select(self, at: Int[Tensor, " k"]) -> Pairs:
        """Returns some of the pairs."""
        gold = None if self.gold is None else self.gold[at]
        return Pairs(self.query[at], self.key[at], self.weights[at], gold, self.queries)


@dataclass(frozen=True, eq=False)
class LabelledMap:
    """The weights of one site for one example.

    Attributes:
        site: Qualified name of the module that attends.
        layer: Number of the site in the order of the model.
        weights: Weights on the CPU, with the axes `axes`.
        axes: (head, query, key); (head, step, key) for a decoder with one query a step; (head, step, query, key) for
            several queries a step; (edge, head) or (step, edge, head) for edges; (channel,) or (height, width) for a
            gate.
        heads: Number of each head; -1 is the mean of all. A gate has none.
        labels: Labels along query, key and step, along source and target of edges, or along each axis of a gate.
        permitted: Mask of the pairs of a dense map that exist, broadcast over the heads. None: all.
        source, target: Ends of each edge, as indices into their labels.
        gold: Mask of the pairs where attention belongs, with the axes of the weights except for heads.
        nouns: Noun for the labels of an axis: {"query": "word", "key": "patch"}.
    """

    site: str
    layer: int
    weights: Float[Tensor, "..."]
    axes: tuple[str, ...]
    heads: tuple[int, ...]
    labels: Mapping[str, Sequence[str]]
    permitted: Bool[Tensor, "..."] | None = None
    source: Int[Tensor, " e"] | None = None
    target: Int[Tensor, " e"] | None = None
    gold: Bool[Tensor, "..."] | None = None
    nouns: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_edges(self) -> bool:
        return "edge" in self.axes

    @property
    def is_gate(self) -> bool:
        """Whether the weights are those of channels or positions of a gate, which has no queries."""
        return "head" not in self.axes

    @property
    def query_axes(self) -> tuple[str, ...]:
        """Axes of queries: step, query, target; none for a gate."""
        if self.is_gate:
            return ()
        if self.has_edges:
            return ("step", "target") if "step" in self.axes else ("target",)
        return self.axes[1:-1]

    @property
    def key_axis(self) -> str:
        return self.key_axes[-1]

    @property
    def key_axes(self) -> tuple[str, ...]:
        """Axes of keys: key or source; all axes of a gate."""
        if self.is_gate:
            return self.axes
        return ("source",) if self.has_edges else ("key",)

    @property
    def attends_to_itself(self) -> bool:
        """Whether queries and keys are the same, so that a pair can be a self-loop."""
        if self.is_gate:
            return False
        queries, keys = self.labels.get(self.query_axes[-1]), self.labels[self.key_axis]
        if self.query_axes[-1] == "step" or queries is None:
            return False
        return queries is keys or list(queries) == list(keys)

    @property
    def is_self_loop(self) -> Bool[Tensor, " e"]:
        """Mask of the edges that are self-loops."""
        if self.source is None or self.target is None:
            raise ValueError(f"{self.site} has a dense map; only edges can be self-loops")
        return (self.source == self.target) & self.attends_to_itself

    def position(self, axis: str, label: str) -> int:
        """Returns the index of the first label with this text."""
        try:
            return list(self.labels[axis]).index(label)
        except ValueError:
            noun = self.nouns.get(axis, axis)
            near = did_you_mean(label, self.labels[axis]) if len(self.labels[axis]) < 10_000 else ""
            raise KeyError(f"there is no {noun} {label!r}. {near}".strip()) from None

    def head(self, number: int | None = None) -> Float[Tensor, "..."]:
        """Returns the weights of one head, or the mean of all, in fp32 and without the head axis."""
        if self.is_gate and number is None:
            return self.weights.float()
        if self.is_gate:
            raise ValueError(f"{self.site} is a gate, which has no heads")
        axis = self.axes.index("head")
        if number is None:
            return self.weights.float().mean(axis)
        return self.weights.select(axis, self._head_position(number)).float()

    def pairs(self, head: int | None = None) -> Pairs:
        """Returns the pairs of one head, or of the mean of all heads. The values of a gate count as one query."""
        weights = self.head(head)
        if self.is_gate:
            weights = weights.flatten()
            gold = None if self.gold is None else self.gold.flatten()
            return Pairs(torch.zeros(len(weights), dtype=torch.int64), torch.arange(len(weights)), weights, gold, 1)
        if self.source is not None and self.target is not None:
            return self._edge_pairs(weights)
        *sizes, keys = weights.shape
        queries = prod(sizes)
        weights = weights.reshape(queries, keys)
        if self.permitted is None:
            query = torch.arange(queries).repeat_interleave(keys)
            key = torch.arange(keys).repeat(queries)
        else:
            query, key = self._permitted_by(head).expand(*sizes, keys).reshape(queries, keys).nonzero(as_tuple=True)
        gold = None if self.gold is None else self.gold.reshape(queries, keys)[query, key]
        return Pairs(query, key, weights[query, key], gold, queries)

    def _edge_pairs(self, weights: Float[Tensor, "*step e"]) -> Pairs:
        assert self.source is not None
        assert self.target is not None
        steps = weights.shape[0] if "step" in self.axes else 1
        nodes = len(self.labels["target"])
        query = (torch.arange(steps)[:, None] * nodes + self.target).flatten()
        gold = None if self.gold is None else self.gold.expand(weights.shape).flatten()
        return Pairs(query, self.source.long().repeat(steps), weights.flatten(), gold, steps * nodes)

    def _permitted_by(self, head: int | None) -> Bool[Tensor, "..."]:
        assert self.permitted is not None
        if len(self.permitted) == 1:
            return self.permitted[0]
        return self.permitted.any(0) if head is None else self.permitted[self._head_position(head)]

    def _head_position(self, number: int) -> int:
        if number not in self.heads:
            raise ValueError(f"{self.site} has heads {list(self.heads)}, not {number}")
        return self.heads.index(number)
