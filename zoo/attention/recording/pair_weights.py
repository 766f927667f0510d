"""Recorded weights in the form that penalties use: dense maps and lists of pairs, with the same operations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from zoo.attention.kernels.dtypes import upcast
from zoo.attention.recording.attention_map import AttentionMap


@dataclass(frozen=True, eq=False)
class Pairs(ABC):
    """The weights of one map.

    Args:
        site: Qualified name of the module that attends.
        weights: Weights in fp32 or wider, zero where there is no pair: (b,h,q,k) or (b,h,p).
        permitted: Mask of the pairs that exist; broadcasts to the weights.
        counted: Mask of the queries that are not padding. Default: all queries.
    """

    site: str
    weights: Float[Tensor, "b h *pairs"]
    permitted: Bool[Tensor, "#b #h *#pairs"]
    counted: Bool[Tensor, "b q"] | None

    @property
    def real(self) -> Bool[Tensor, "b h q"]:
        """Mask of the queries that are not padding and see a key."""
        seeing = self.sum_per_query(self.permitted.expand(self.weights.shape).to(self.weights.dtype)) > 0
        if self.counted is None:
            return seeing
        batch, _, queries = seeing.shape
        if self.counted.shape != (batch, queries):
            raise ValueError(
                f"{self.site} has {batch} x {queries} queries, and the mask of real queries is "
                f"{tuple(self.counted.shape)}"
            )
        return seeing & self.counted.unsqueeze(1)

    @property
    def is_real(self) -> Bool[Tensor, "b h *pairs"]:
        """Mask of the pairs of real queries."""
        return self.broadcast_queries(self.real)

    def normalize_gold(self, gold: Float[Tensor, "..."] | Bool[Tensor, "..."]) -> Float[Tensor, "b h *pairs"]:
        """Normalizes a gold alignment (without heads) to sum to one for each query; zero for queries without keys."""
        batch, _, *pairs = self.weights.shape
        if gold.shape not in ((batch, *pairs), tuple(pairs)):
            raise ValueError(f"{self.site} has pairs {(batch, *pairs)}, and the gold attention is {tuple(gold.shape)}")
        every = gold.to(self.weights.dtype).expand(batch, *pairs).unsqueeze(1).expand(self.weights.shape)
        every = torch.where(self.permitted, every, 0.0)
        total = self.sum_per_query(every)
        return every / self.broadcast_queries(total.masked_fill(total == 0, 1.0))

    @abstractmethod
    def sum_per_query(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """Returns the sum over the pairs of each query: (b,h,q)."""

    @abstractmethod
    def sum_per_key(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """Returns the sum over the pairs of each key: (b,h,k)."""

    @abstractmethod
    def broadcast_queries(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """Returns for each pair the entry of its query; broadcasts to the pairs."""


@dataclass(frozen=True, eq=False)
class DensePairs(Pairs):
    """Pairs (b,h,q,k); the steps of a decoder are queries."""

    def sum_per_query(self, x: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q"]:
        return x.sum(-1)

    def sum_per_key(self, x: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h k"]:
        return x.sum(-2)

    def broadcast_queries(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        return x.unsqueeze(-1)


@dataclass(frozen=True, eq=False)
class SparsePairs(Pairs):
    """Pairs (b,h,p): edges of graphs, and the pairs of sparse patterns."""

    query: Int[Tensor, " p"]
    key: Int[Tensor, " p"]
    sizes: tuple[int, int]

    def sum_per_query(self, x: Float[Tensor, "b h p"]) -> Float[Tensor, "b h q"]:
        return x.new_zeros(*x.shape[:2], self.sizes[0]).index_add(2, self.query, x)

    def sum_per_key(self, x: Float[Tensor, "b h p"]) -> Float[Tensor, "b h k"]:
        return x.new_zeros(*x.shape[:2], self.sizes[1]).index_add(2, self.key, x)

    def broadcast_queries(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        return x.index_select(2, self.query)


def pairs_of(attention: AttentionMap, counted: Bool[Tensor, "b q"] | None = None) -> list[Pairs]:
    """Converts a map to the pairs of its calls.

    The calls of a dense map are joined along the queries; those of lists of pairs stay separate. For weights that were
    drawn, the probabilities are used in their place.
    """
    steps = (
        attention if attention.probabilities is None else replace(attention, weights=attention.probabilities)
    ).steps()
    if attention.view is not None or not all(step.has_pairs for step in steps):
        raise ValueError(
            f"penalties need weights of queries and keys; {attention.site} has the axes {', '.join(attention.axes)}"
        )
    lists = [step.layout.pairs() for step in steps]
    if any(step is None for step in lists):
        return [_dense(attention.site, steps, counted)]
    return [_list_pairs(one, pairs, counted) for one, pairs in zip(steps, lists, strict=True) if pairs is not None]


def _dense(site: str, steps: list[AttentionMap], counted: Tensor | None) -> DensePairs:
    weights = [upcast(step.dense()) for step in steps]
    masks = [step.pair_mask().expand(dense.shape) for step, dense in zip(steps, weights, strict=True)]
    keys = max(dense.shape[-1] for dense in weights)
    every, permitted = (
        torch.cat([F.pad(x, (0, keys - x.shape[-1]), value=0) for x in tensors], 2) for tensors in (weights, masks)
    )
    return DensePairs(site, torch.where(permitted, every, 0.0), permitted, counted)


def _list_pairs(one: AttentionMap, pairs: Int[Tensor, "2 p"], counted: Tensor | None) -> SparsePairs:
    layout = one.layout
    exists, rows = layout.exists(one.weights), one.weights if "batch" in one.axes else one.weights.t().unsqueeze(0)
    weights = torch.where(exists, upcast(rows), 0.0)
    at_query, at_key = pairs.long().clamp(min=0)
    return SparsePairs(
        one.site, weights, exists.expand(weights.shape), counted, at_query, at_key, layout.sizes(one.weights)
    )
