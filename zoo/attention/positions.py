"""Where queries and keys stand: what a position adds to attention."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.supports import Support


class Position(nn.Module):
    """What a position may change of attention; each kind does what it needs and leaves the rest as it is.

    Positions count from zero. The last query stands at the last key, so that the one new query of a decoder stands
    after all that came before it.
    """

    needs_weights = False
    """Whether the context depends on the weights themselves, which fused kernels do not give."""

    def turn(self, key: Float[Tensor, "..."], start: int = 0) -> Float[Tensor, "..."]:
        """Keys as they are at the positions from `start` on."""
        return key

    def turn_query(
        self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], support: Support
    ) -> Float[Tensor, "..."]:
        """Queries as they are at their positions."""
        return query

    def bias(
        self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], support: Support, scale: float
    ) -> Float[Tensor, "..."] | None:
        """What is added to the score of each pair; `scale` is what the score multiplies products with."""
        return None

    def add_context(
        self, context: Float[Tensor, "..."], weights: Float[Tensor, "..."], support: Support
    ) -> Float[Tensor, "..."]:
        """The context of each query, with what positions bring to it."""
        return context
