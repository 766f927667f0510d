"""Who may attend to whom, and how pairs are laid out in memory.

A support is the layout of the pairs (query, key) that exist. Scores, normalisers and Attend are written with its
operations, and so are maps, their scores and their pictures: a new layout is one class, and works in all of them. One
convention everywhere: boolean, True = may attend.

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

from zoo.attention.kernels.precision import at_least_single

RowFunction = Callable[[Tensor, Tensor | None], Tensor]
KeyFunction = Callable[[Tensor], Tensor]


class Support(ABC):
    """The operations of a layout of pairs, by who asks for them: `Attend`, scores and positions, maps."""

    axes: ClassVar[tuple[str, ...]]
    """The names of the axes of pairs. Maps whose first axis is `edge` stay lists of pairs; others become matrices."""
    is_ordered: ClassVar[bool] = True
    """Whether queries and keys follow one another, and so have positions and steps."""

    # Attend: who is scored, how scores become weights, what weights bring.

    def check(self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], value: Float[Tensor, "..."]) -> None:
        """Refuses queries, keys and values that do not belong together or to the support; looks at shapes alone."""
        for name, x, axes in (
            ("query", query, "(b, h, q, d)"),
            ("key", key, "(b, h, k, d)"),
            ("value", value, "(b, h, k, v)"),
        ):
            if x.dim() != 4:
                raise ValueError(f"{name} must have the axes {axes}, got shape {tuple(x.shape)}")
        if key.shape[2] != value.shape[2]:
            raise ValueError(
                f"there are k={key.shape[2]} keys and k={value.shape[2]} values; there must be one value a key"
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
        """A zero for every pair."""

    @abstractmethod
    def dot(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> Float[Tensor, "..."]:
        """query · key for every pair."""

    @abstractmethod
    def at_query(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """What belongs to the query of each pair; broadcasts with `at_key`."""

    @abstractmethod
    def at_key(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """What belongs to the key of each pair; broadcasts with `at_query`."""

    def of_key(self, function: KeyFunction, key: Float[Tensor, "*keys dk"]) -> Shaped[Tensor, "..."]:
        """`at_key(function(key))`, for a function of each key alone; what no query sees reaches no gradient of it."""
        return self.at_key(function(key))

    def per_head(self, parameter: Float[Tensor, "h d"]) -> Float[Tensor, "..."]:
        """A parameter in the shape that multiplies this layout's queries and keys."""
        return parameter.unsqueeze(1)

    @abstractmethod
    def project(self, hidden: Float[Tensor, "..."], parameter: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """parameter (h, d) · hidden for every pair, where hidden has one vector a pair."""

    def softmax(self, scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Softmax over the permitted keys of each query, in at least fp32; zeros where there are none."""
        return self.by_row(masked_softmax, scores)

    @abstractmethod
    def by_row(self, function: RowFunction, scores: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """`function(scores (..., keys), permitted or None) -> weights`, on the keys of each query.

        `permitted` is boolean and broadcasts to the scores; None permits all. Scores elsewhere may be anything.
        """

    @abstractmethod
    def combine(self, weights: Float[Tensor, "..."], value: Float[Tensor, "*values v"]) -> Float[Tensor, "..."]:
        """For each query the sum of the values, weighted."""

    @abstractmethod
    def clean(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Keys or values with zeros at positions that no query may see: 0 x NaN would be NaN."""

    @abstractmethod
    def clean_queries(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> Float[Tensor, "..."]:
        """Queries with zeros where they see no key, for the same reason."""

    # Positions: where a query and a key stand.

    @property
    def later(self) -> int:
        """How many queries follow the last of these, where they are a part of more."""
        return 0

    def first_position(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> int:
        """Where the first query stands, the last query of the whole being at the last key."""
        return key.shape[2] - query.shape[2] - self.later

    @abstractmethod
    def offsets(self, query: Float[Tensor, "*queries d"], key: Float[Tensor, "*keys dk"]) -> Int[Tensor, "..."]:
        """Position of the key less that of the query, for every pair; the last query stands at the last key."""

    def range_of(self, offsets: Int[Tensor, "..."]) -> tuple[int, int]:
        """The least and the greatest of `offsets`, which may leave out those of pairs that do not exist."""
        return (int(offsets.min()), int(offsets.max())) if offsets.numel() else (0, 0)

    @abstractmethod
    def pick(self, x: Float[Tensor, "..."], index: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Of its query's row of x (b,h,q,m), the entry that `index` names for each pair."""

    @abstractmethod
    def bin(self, pairs: Float[Tensor, "..."], index: Int[Tensor, "..."], bins: int) -> Float[Tensor, "..."]:
        """The opposite: for each query and bin, the sum of the pairs that `index` puts there: (b,h,q,m)."""

    # Maps: which pairs the weights are of.

    @abstractmethod
    def sizes(self, pairs: Shaped[Tensor, "..."]) -> tuple[int, int]:
        """How many queries and keys there are."""

    @abstractmethod
    def exists(self, pairs: Shaped[Tensor, "..."]) -> Bool[Tensor, "..."]:
        """Which of the pairs exist; broadcasts to them."""

    @abstractmethod
    def total(self, pairs: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The sum over the pairs of each query: (b,h,q), or (q,h) over edges."""

    def pairs(self) -> Int[Tensor, "2 e"] | None:
        """The query and the key of each pair, where pairs are one list for all examples and heads.

        -1 where the layout has a gap.
        """
        return None

    @abstractmethod
    def to_dense(self, pairs: Float[Tensor, "..."], queries: int, keys: int) -> Float[Tensor, "b h q k"]:
        """The pairs as a matrix, zero where no pair is: for tests, and for maps of short inputs."""

    def dense_mask(self, pairs: Float[Tensor, "..."]) -> Bool[Tensor, "#b #h #q #k"]:
        """Which pairs of `to_dense` exist."""
        return self.to_dense(self.exists(pairs).expand(pairs.shape).float(), *self.sizes(pairs)) > 0

    @abstractmethod
    def of_example(self, index: int) -> Support:
        """That of one example of a batch, as a batch of one."""

    @abstractmethod
    def of_heads(self, heads: Sequence[int] | None) -> Support:
        """That of some of the heads; None: of their average, in which a pair exists where it does for any of them."""


def masked_softmax(scores: Float[Tensor, "... k"], permitted: Bool[Tensor, "... #k"] | None) -> Float[Tensor, "... k"]:
    """exp(s_j) / sum_k exp(s_k) over the permitted keys, in at least fp32.

    Zeros in a row that permits none, or whose scores are all -inf.
    """
    scores = at_least_single(scores)
    if permitted is not None:
        scores = scores.masked_fill(~permitted, -torch.inf)
    # softmax, with zeros for a row of -inf, in the gradient too
    return torch.ops.aten._safe_softmax(scores, -1)  # type: ignore[no-any-return]


def mask_of_example(mask: Shaped[Tensor, "_ ..."], index: int) -> Shaped[Tensor, "1 ..."]:
    """Of (b,...), where one may stand for all."""
    return mask if len(mask) == 1 else mask[index : index + 1]


def mask_of_heads(mask: Shaped[Tensor, "b _ ..."], heads: Sequence[int] | None) -> Shaped[Tensor, "b _ ..."]:
    """Of (b,h,...), where one may stand for all; of an average, whatever any head may see."""
    if mask.shape[1] == 1:
        return mask
    return mask.any(1, keepdim=True) if heads is None else mask[:, list(heads)]
