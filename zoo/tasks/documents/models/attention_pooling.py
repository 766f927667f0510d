"""A level of the hierarchy: encodes the rows of sequences, and combines each sequence into one vector by attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention import Attention, EdgeSupport, Pooling
from zoo.types import NonNegativeInt, PositiveInt, validate_ranges


@validate_ranges
class AttentionPooledLevel(nn.Module):
    """s_i = sum_t a_it h_it, where h_it are the encoded rows of sequence i (Yang et al. 2016, eq. 5-7 and 8-10).

    Args:
        encoder: `(rows, sequences, lengths) -> rows` of width `encoder.width`: `Recurrent` or `Encoder`.
        context: Width of the hidden representation u, which is compared with the context vector.
        attend: `(dim, heads) -> Attention`, called with the width of u and one head.
        beside: Width of additional rows that attention reads and the encoder does not.
    """

    encoder: Any

    def __init__(
        self,
        *,
        encoder: nn.Module,
        context: PositiveInt,
        attend: Callable[[int, int], Attention],
        beside: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.width = self.encoder.width + beside
        self.pool = Pooling(dim=self.width, hidden=context, attend=attend, over=EdgeSupport)

    def forward(
        self,
        x: Float[Tensor, "n d"],
        sequences: Int[Tensor, " n"],
        lengths: Int[Tensor, " s"],
        beside: Float[Tensor, "n f"] | None = None,
    ) -> Float[Tensor, "s e"]:
        """Returns a vector for each of the packed sequences.

        Args:
            x: Rows of all sequences, one sequence after another.
            sequences: Index of each row's sequence.
            lengths: Number of rows of each sequence, at least 1.
            beside: Additional rows f_it that the encoder does not see; attention reads [h_it; f_it].
        """
        rows = self.encoder(x, sequences, lengths)
        rows = rows if beside is None else torch.cat([rows, beside], 1)
        return self.pool(rows, EdgeSupport.from_groups(sequences, len(lengths))).squeeze(1)  # type: ignore[no-any-return]
