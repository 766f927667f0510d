"""Recorded weights as penalties see them: dense maps and lists of pairs, by query and by key alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from zoo.attention.kernels.precision import at_least_single
from zoo.attention.observing.record import AttentionMap
from zoo.attention.supports.blocks import BlockSupport
from zoo.attention.supports.layouts import DenseSupport, EdgeSupport, Support
from zoo.attention.supports.local import LocalSupport


@dataclass(frozen=True, eq=False)
class Pairs(ABC):
    """The weights of one map.

    Args:
        weights: In at least fp32, zero where no pair is: (b,h,q,k) or (b,h,p).
        permitted: Which pairs exist; broadcasts to the weights.
        counted: Queries that are no padding; None: as far as is known, all.
    """

    site: str
    weights: Float[Tensor, "b h *pairs"]
    permitted: Bool[Tensor, "#b #h *#pairs"]
    counted: Bool[Tensor, "b q"] | None

    @property
    def real(self) -> Bool[Tensor, "b h q"]:
        """The queries that count and see a key."""
        seeing = self.by_query(self.permitted.expand(self.weights.shape).to(self.weights.dtype)) > 0
        if self.counted is None:
            return seeing
        batch, _, queries = seeing.shape
        if self.counted.shape != (batch, queries):
            raise ValueError(
                f"{self.site} has {batch} x {queries} queries, and the mask of real ones is {tuple(self.counted.shape)}"
            )
        return seeing & self.counted.unsqueeze(1)

    @property
    def is_real(self) -> Bool[Tensor, "b h *pairs"]:
        """The pairs of real queries."""
        return self.at_query(self.real)

    def shared(self, gold: Float[Tensor, "..."] | Bool[Tensor, "..."]) -> Float[Tensor, "b h *pairs"]:
        """An alignment, given without heads, whose keys share their query's attention; zero for queries without any."""
        batch, _, *pairs = self.weights.shape
        if gold.shape not in ((batch, *pairs), tuple(pairs)):
            raise ValueError(f"{self.site} has pairs {(batch, *pairs)}, and the gold attention is {tuple(gold.shape)}")
        every = gold.to(self.weights.dtype).expand(batch, *pairs).unsqueeze(1).expand(self.weights.shape)
        every = torch.where(self.permitted, every, 0.0)
        total = self.by_query(every)
        return every / self.at_query(total.masked_fill(total == 0, 1.0))

    @abstractmethod
    def by_query(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """The sum over the pairs of each query: (b,h,q)."""

    @abstractmethod
    def by_key(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """The sum over the pairs of each key: (b,h,k)."""

    @abstractmethod
    def at_query(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """What belongs to the query of each pair."""


@dataclass(frozen=True, eq=False)
class Dense(Pairs):
    """(b,h,q,k); the steps of a decoder are queries."""

    def by_query(self, x: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q"]:
        return x.sum(-1)

    def by_key(self, x: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h k"]:
        return x.sum(-2)

    def at_query(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        return x.unsqueeze(-1)


@dataclass(frozen=True, eq=False)
class Listed(Pairs):
    """(b,h,p): edges, and the pairs of sparse patterns."""

    query: Int[Tensor, " p"]
    key: Int[Tensor, " p"]
    sizes: tuple[int, int]

    def by_query(self, x: Float[Tensor, "b h p"]) -> Float[Tensor, "b h q"]:
        return x.new_zeros(*x.shape[:2], self.sizes[0]).index_add(2, self.query, x)

    def by_key(self, x: Float[Tensor, "b h p"]) -> Float[Tensor, "b h k"]:
        return x.new_zeros(*x.shape[:2], self.sizes[1]).index_add(2, self.key, x)

    def at_query(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        return x.index_select(2, self.query)


def pairs_of(found: AttentionMap, counted: Bool[Tensor, "b q"] | None = None) -> list[Pairs]:
    """A dense map as one, its steps in their order; of other layouts each call of the site on its own.

    Where the weights were drawn, what they were drawn from: a draw is all or nothing, whatever its probabilities.
    """
    supports = found.support if isinstance(found.support, list) else [found.support]
    weights = found.weights if found.probabilities is None else found.probabilities
    calls = list(weights) if "step" in found.axes else [weights]
    if found.view is None and found.axes[-1] in ("key", "near"):
        return [_dense(found, supports, calls, counted)]
    if found.view is None and found.axes[-1] in ("head", "pair"):
        return [_listed(found, *each, counted) for each in zip(supports, calls, strict=True)]
    raise ValueError(f"penalties are of queries and keys; {found.site} has the axes {', '.join(found.axes)}")


def _dense(
    found: AttentionMap, supports: Sequence[Support | None], calls: list[Tensor], counted: Tensor | None
) -> Dense:
    parts = []
    for step, (support, weights) in enumerate(zip(supports, calls, strict=True)):
        lengths = [found.lengths[axis][step] for axis in found.axes[-2:]] if found.lengths else weights.shape[-2:]
        weights = weights[..., : lengths[0], : lengths[1]]
        if isinstance(support, LocalSupport):
            mask = support.to_dense(torch.ones_like(weights), lengths[0], support.keys) > 0
            weights = support.to_dense(weights, lengths[0], support.keys)
        else:
            assert isinstance(support, DenseSupport)
            mask = _mask_of(found, support, weights)
        parts.append((at_least_single(weights), mask.expand(weights.shape)))
    keys = max(weights.shape[-1] for weights, _ in parts)
    every, masks = (
        torch.cat([F.pad(x, (0, keys - x.shape[-1]), value=0) for x in each], 2) for each in zip(*parts, strict=True)
    )
    return Dense(found.site, torch.where(masks, every, 0.0), masks, counted)


def _mask_of(found: AttentionMap, support: DenseSupport, weights: Tensor) -> Bool[Tensor, "#b #h #q #k"]:
    queries, keys = weights.shape[-2:]
    mask = support.mask(queries, keys, weights.device)
    if mask is None:
        return torch.ones((1,) * 4, dtype=torch.bool, device=weights.device)
    if mask.shape[1] > 1:
        mask = mask.any(1, keepdim=True) if found.heads == (-1,) else mask[:, list(found.heads)]
    return mask


def _listed(found: AttentionMap, support: Support | None, weights: Tensor, counted: Tensor | None) -> Listed:
    if isinstance(support, EdgeSupport):
        rows = weights.transpose(0, 1).unsqueeze(0)[..., : len(support.pattern)]
        permitted = torch.ones((), dtype=torch.bool, device=weights.device)
        at_query, at_key, sizes = support.target.long(), support.source.long(), support.pattern.shape
    elif isinstance(support, BlockSupport):
        permitted = support.permitted
        at_query, at_key = support.pairs().clamp(min=0)
        rows, sizes = weights[..., : permitted.shape[-1]], (support.layout.queries, support.layout.keys)
    else:
        raise ValueError(f"penalties work on dense maps, edges and sparse patterns, not on {type(support).__name__}")
    weights = torch.where(permitted, at_least_single(rows), 0.0)
    return Listed(found.site, weights, permitted.expand(weights.shape), counted, at_query, at_key, sizes)
