"""What a decoder remembers of its own attention, from one step to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor


class Aligned(NamedTuple):
    """What a normaliser gives whose memory is not its weights: the weights, and what it is to find in the state."""

    weights: Float[Tensor, "b h q k"]
    alignment: Float[Tensor, "b h q k"]


@dataclass(frozen=True, eq=False)
class AttentionState:
    """What a decoder remembers of its own attention; an argument and a return value, never kept on a module."""

    weights: Float[Tensor, "b h q k"]
    """The previous step's alignment."""
    total: Float[Tensor, "b h q k"]
    """The sum of all alignments so far: coverage."""
    alignment: Float[Tensor, "b h q k"] | None = None
    """Where the previous step stood, of a normaliser for which that is not its weights."""

    def step(
        self, weights: Float[Tensor, "b h q k"], alignment: Float[Tensor, "b h q k"] | None = None
    ) -> AttentionState:
        return AttentionState(weights, self.total + weights, alignment)

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
