"""A level of the hierarchy: rows of sequences are encoded, and each sequence is read by attention into one vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention import Attend, EdgeSupport, Pooling
from zoo.attention.ranges import Count


class Level(nn.Module):
    """s_i = sum_t a_it h_it, where h are the encoder's rows of sequence i (Yang et al. 2016, eq. 5-7 and 8-10).

    Args:
        encoder: `(rows, sequences, lengths) -> rows`, of width `encoder.width`: `Recurrent` or `Encoder`.
        context: Width of the hidden representation u that is compared with the context vector.
        attend: `(dim, heads) -> Attend`, called with the width of u and one head.
    """

    encoder: Any

    def __init__(self, *, encoder: nn.Module, context: Count, attend: Callable[[int, int], Attend]) -> None:
        super().__init__()
        self.encoder = encoder
        self.pool = Pooling(dim=self.encoder.width, hidden=context, attend=attend, over=EdgeSupport)

    def forward(
        self, x: Float[Tensor, "n d"], sequences: Int[Tensor, " n"], lengths: Int[Tensor, " s"]
    ) -> Float[Tensor, "s e"]:
        """Reads packed sequences.

        Args:
            x: Rows of all sequences, one sequence after another.
            sequences: The number of each row's sequence.
            lengths: Number of rows of each sequence, one or more.
        """
        support = EdgeSupport.from_groups(sequences, len(lengths))
        return self.pool(self.encoder(x, sequences, lengths), support).squeeze(1)  # type: ignore[no-any-return]
