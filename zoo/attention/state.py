"""What a decoder remembers of its own attention, from one step to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


class Aligned(NamedTuple):
    """What a normaliser gives whose memory is not its weights: the weights, and what it is to find in the state."""

    weights: Float[Tensor, "b h q k"]
    alignment: Float[Tensor, "b h q k"]


@dataclass(frozen=True, eq=False)
class AttentionState:
    """What a decoder remembers of its own attention; an argument and a return value, never kept on a module.

    It has one row, and the queries of a call are the steps that follow one another; or a row for each of several
    hypotheses that share their keys, and each query is the next step of its own.
    """

    weights: Float[Tensor, "b h r k"]
    """The previous step's alignment."""
    total: Float[Tensor, "b h r k"]
    """The sum of all alignments so far: coverage."""
    alignment: Float[Tensor, "b h r k"] | None = None
    """Where the previous step stood, of a normaliser for which that is not its weights."""

    @property
    def rows(self) -> int:
        return self.weights.shape[2]

    def step(
        self, weights: Float[Tensor, "b h q k"], alignment: Float[Tensor, "b h q k"] | None = None
    ) -> AttentionState:
        """The memory after these queries."""
        queries = weights.shape[2]
        self.check(queries)
        if queries == self.rows:
            return AttentionState(weights, self.total + weights, alignment)
        if not queries:
            return self
        last = None if alignment is None else alignment[:, :, -1:]
        return AttentionState(weights[:, :, -1:], self.total + weights.sum(2, keepdim=True), last)

    def check(self, queries: int) -> None:
        """Refuses a number of queries that does not belong to its rows."""
        if self.rows not in (1, queries):
            raise ValueError(f"the state is of {self.rows} hypotheses, one query each, and there are {queries} queries")

    def extended(self, keys: int) -> AttentionState:
        """The memory of more keys, the new ones at the end; nothing was attended to there."""
        rows = (None if x is None else F.pad(x, (0, keys)) for x in (self.weights, self.total, self.alignment))
        return AttentionState(*rows)  # type: ignore[arg-type]

    def reorder(self, beams: Int[Tensor, " beams"]) -> AttentionState:
        """The memory of the hypotheses that survive, in their order."""
        alignment = None if self.alignment is None else self.alignment.index_select(0, beams)
        return AttentionState(self.weights.index_select(0, beams), self.total.index_select(0, beams), alignment)


@dataclass(frozen=True, eq=False)
class LinearState:
    """What causal attention by a kernel remembers of its keys: their sums, whose size does not grow."""

    sums: Float[Tensor, "b h f v"]
    """sum_j phi(k_j) v_j^T, and in the last column sum_j phi(k_j); one column before the first key."""
    scale: Float[Tensor, "b h f"]
    """The logarithm of what each feature was divided by, where features are exponentials."""
    length: int
    """How many keys there were: the position of the next."""

    def sums_at(self, scale: Float[Tensor, "b h f"] | None) -> Float[Tensor, "b h f v"]:
        """The sums, of features divided by exp(scale)."""
        return self.sums if scale is None else self.sums * (self.scale - scale).exp().unsqueeze(-1)

    def step(self, sums: Float[Tensor, "b h f v"], scale: Float[Tensor, "b h f"] | None, keys: int) -> LinearState:
        return LinearState(sums, self.scale if scale is None else scale, self.length + keys)

    def reorder(self, beams: Int[Tensor, " beams"]) -> LinearState:
        """The memory of the hypotheses that survive, in their order."""
        return LinearState(self.sums.index_select(0, beams), self.scale.index_select(0, beams), self.length)
