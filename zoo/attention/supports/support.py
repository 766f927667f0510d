"""The interface of supports: which queries may attend to which keys, and how these pairs are laid out in memory.

Scores, normalizers and `Attention` use only these operations, and so do maps, their scores and their pictures: a new
layout is one class, and works in all of them. Masks are boolean everywhere, True = may attend.

| support      | query, key, value               | pairs            | who it is for                                    |
|--------------|---------------------------------|------------------|--------------------------------------------------|
| DenseSupport | (b,h,q,d), (b,h,k,d), (b,h,k,v) | (b,h,q,k)        | sequences, patches, sets                         |
| EdgeSupport  | (q,h,d), (k,h,d), (k,h,v)       | (e,h), by target | graphs, and words to sentences: one row per edge |
| BlockSupport | as DenseSupport                 | (b,h,e)          | windows and sparse patterns                      |
| LocalSupport | as DenseSupport                 | (b,h,q,s)        | a decoder that attends around a position         |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from zoo.attention.kernels.dtypes import upcast

RowFunction = Callable[[Tensor, Tensor | None], Tensor]
KeyFunction = Callable[[Tensor], Tensor]


class Support(ABC):
    """A layout of the pairs of queries and keys that exist."""

    axes: ClassVar[tuple[str, ...]]
    """Names of the axes of pairs; one is `head`. Maps with an axis `edge` are written as lists, others as matrices."""
    is_ordered: ClassVar[bool] = True
    """True if queries and keys are sequences, which have positions and steps."""

    # Operations of scores, normalizers and Attention.

    def check(self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], value: Float[Tensor, "..."]) -> None:
        """Refuses queries, keys and values whose shapes do not fit each other or the support."""
        for name, x, axes in (
            ("query", query, "(b, h, q, d)"),
            ("key", key, "(b, h, k, d)"),
            ("value", value, "(b, h, k, v)"),
        ):
            if x.dim() != 4:
                raise ValueError(f"{name} must have the axes {axes}, got shape {tuple(x.shape)}")
        if key.shape[2] != value.shape[2]:
            raise ValueError(
                f"there are k={key.shape[2]} keys and k={value.shape[2]} values; there must be one value for each key"
            )
        for name, x in (("keys", key), ("values", value)):
            if x.shape[0] != query.shape[0]:
                raise ValueError(
                    f"queries have b={query.shape[0]} examples and {name} b={x.shape[0]}; they must be the same"
                )
            if x.shape[1] == 0 or query.shape[1] % x.shape[1]:
                raise ValueError(
                    f"the h={query.shape[1]} heads of queries are not divisible by the {x.shape[1]} of {name}"
                )

    @abstractmethod
    def zeros(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> Float[Tensor, "..."]:
        """Returns zero for every pair."""

    @abstractmethod
    def dot(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> Float[Tensor, "..."]:
        """Returns query · key for every pair."""

    @abstractmethod
    def gather_queries(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """Returns for each pair the entry of its query; broadcasts with `gather_keys`."""

    @abstractmethod
    def gather_keys(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """Returns for each pair the entry of its key; broadcasts with `gather_queries`."""

    def map_keys(self, function: KeyFunction, key: Float[Tensor, "*keys dk"]) -> Shaped[Tensor, "..."]:
        """Returns `gather_keys(function(key))`, for a function of each key; keys that no query sees get no gradient."""
        return self.gather_keys(function(key))

    def broadcast_heads(self, parameter: Float[Tensor, "h d"]) -> Float[Tensor, "..."]:
        """Returns a parameter in a shape that broadcasts to queries and keys."""
        return parameter.unsqueeze(1)

    @abstractmethod
    def dot_parameter(self, hidden: Float[Tensor, "..."], parameter: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Returns parameter (h, d) · hidden, where `hidden` has one vector for each pair."""

    def softmax(self, scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Returns the softmax over the permitted keys of each query, in at least fp32; zeros if there are none."""
        return self.apply_per_query(masked_softmax, scores)

    @abstractmethod
    def apply_per_query(self, function: RowFunction, scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Applies `function(scores (..., keys), permitted or None) -> weights` to the keys of each query.

        `permitted` is boolean and broadcasts to the scores; None permits all. Scores of other keys are arbitrary.
        """

    @abstractmethod
    def combine(self, weights: Float[Tensor, "..."], value: Float[Tensor, "*values v"]) -> Float[Tensor, "..."]:
        """Returns the context of each query, sum_j w_ij v_j."""

    @abstractmethod
    def zero_masked(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Returns keys or values with zeros where no query may attend: 0 x NaN would be NaN."""

    @abstractmethod
    def zero_blind_queries(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]
    ) -> Float[Tensor, "..."]:
        """Returns queries with zeros where they may attend to no key, for the same reason."""

    # Operations of positions.

    @property
    def later(self) -> int:
        """Number of queries of the sequence that follow the last of these."""
        return 0

    def first_position(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> int:
        """Returns the position of the first query, given that the last query of the sequence stands at the last key."""
        return key.shape[2] - query.shape[2] - self.later

    @abstractmethod
    def relative_positions(
        self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]
    ) -> Int[Tensor, "..."]:
        """Returns the position of the key minus that of the query, for every pair."""

    def range_of(self, offsets: Int[Tensor, "..."]) -> tuple[int, int]:
        """Returns the smallest and the largest offset of pairs that exist, or bounds of these."""
        return (int(offsets.min()), int(offsets.max())) if offsets.numel() else (0, 0)

    @abstractmethod
    def gather_rows(self, x: Float[Tensor, "..."], index: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Returns for each pair the entry `index` of its query's row of x (b,h,q,m)."""

    @abstractmethod
    def scatter_add(self, pairs: Float[Tensor, "..."], index: Int[Tensor, "..."], bins: int) -> Float[Tensor, "..."]:
        """Returns for each query and bin the sum of the pairs whose `index` is that bin: (b,h,q,m)."""

    # Operations of maps.

    @abstractmethod
    def sizes(self, pairs: Shaped[Tensor, "..."]) -> tuple[int, int]:
        """Returns the number of queries and the number of keys."""

    @abstractmethod
    def exists(self, pairs: Shaped[Tensor, "..."]) -> Bool[Tensor, "..."]:
        """Returns a mask of the pairs that exist; it broadcasts to `pairs`."""

    @abstractmethod
    def sum_per_query(self, pairs: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Returns the sum over the pairs of each query: (b,h,q), or (q,h) over edges."""

    def pairs(self) -> Int[Tensor, "2 e"] | None:
        """Returns the query and the key of each pair, or None if they differ between examples or heads.

        -1 marks a gap of the layout.
        """
        return None

    @abstractmethod
    def to_dense(self, pairs: Float[Tensor, "..."], queries: int, keys: int) -> Float[Tensor, "b h q k"]:
        """Returns the pairs as a matrix, zero where there is no pair: for maps of short inputs."""

    def row(self, pairs: Float[Tensor, "..."], query: int) -> Float[Tensor, "b h k"]:
        """Returns the pairs of one query for every key, zero where there is no pair."""
        return self.to_dense(pairs, *self.sizes(pairs))[:, :, query]

    def dense_mask(self, pairs: Float[Tensor, "..."]) -> Bool[Tensor, "#b #h #q #k"]:
        """Returns a mask of the pairs of `to_dense` that exist."""
        return self.to_dense(self.exists(pairs).expand(pairs.shape).float(), *self.sizes(pairs)) > 0

    @abstractmethod
    def select_example(self, index: int) -> Support:
        """Returns the support of one example, as a batch of one."""

    @abstractmethod
    def select_heads(self, heads: Sequence[int] | None) -> Support:
        """Returns the support of these heads; None: of their average, which has every pair that one of them has."""


def masked_softmax(scores: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None) -> Float[Tensor, "... k"]:
    """Computes w_j = exp(s_j) / sum_k exp(s_k) over the permitted keys, in at least fp32.

    A row that permits no key, or whose scores are all -inf, has zero weights.
    """
    scores = upcast(scores)
    if permitted is not None:
        scores = scores.masked_fill(~permitted, -torch.inf)
    # softmax that returns zeros for a row of -inf, in the gradient too
    return torch.ops.aten._safe_softmax(scores, -1)  # type: ignore[no-any-return]


def mask_of_example(mask: Shaped[Tensor, "_ ..."], index: int) -> Shaped[Tensor, "1 ..."]:
    """Returns the row of one example; a mask with one row is that of every example."""
    return mask if len(mask) == 1 else mask[index : index + 1]


def mask_of_heads(mask: Shaped[Tensor, "b _ ..."], heads: Sequence[int] | None) -> Shaped[Tensor, "b _ ..."]:
    """Returns the masks of these heads, or their union if `heads` is None; one mask may serve all heads."""
    if mask.shape[1] == 1:
        return mask
    return mask.any(1, keepdim=True) if heads is None else mask[:, list(heads)]
