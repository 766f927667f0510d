"""What a decoder remembers of its own attention, from one step to the next."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class AttentionState:
    """What a decoder remembers of its own attention; an argument and a return value, never kept on a module."""

    weights: Float[Tensor, "b h q k"]
    """The previous step's alignment."""
    total: Float[Tensor, "b h q k"]
    """The sum of all alignments so far: coverage."""

    def step(self, weights: Float[Tensor, "b h q k"]) -> AttentionState:
        return AttentionState(weights=weights, total=self.total + weights)

    def reorder(self, beams: Int[Tensor, " beams"]) -> AttentionState:
        """The memory of the hypotheses that survive, in their order."""
        return AttentionState(self.weights.index_select(0, beams), self.total.index_select(0, beams))
