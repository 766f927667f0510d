"""Transformer encoders of packed sequences: attention runs on groups of similar length, other layers on packed rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import Attention, EncoderBlock, FeedForward, MixerFactory, Position, self_attention
from zoo.attention.dropout import Dropout
from zoo.attention.factories import make_sized
from zoo.nn.packing import Packing, mix_sequences
from zoo.types import PositiveInt, Probability, validate_ranges


@validate_ranges
class PackedTransformerEncoder(nn.Module):
    """Positions, pre-norm blocks and a final norm (Vaswani et al. 2017, section 3; Xiong et al. 2020).

    Args:
        dim: Width of a row.
        layers: Number of blocks.
        heads: Number of heads per block; divides `dim`.
        hidden: Number of hidden units of the feed-forward networks.
        attend: `(dim, heads) -> Attention`, or a `MixerFactory`.
        position: Encoding that is added to rows: a class or partial of `zoo.attention.positions`, or None.
        relative: Position in the attention itself: a class or partial of a `Position`, or None.
        dropout: Dropout of the input, of hidden units and of the output of each sublayer. `attend` has that of weights.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        layers: PositiveInt,
        heads: PositiveInt,
        hidden: PositiveInt,
        attend: Callable[[int, int], Attention] | MixerFactory,
        position: Callable[..., nn.Module] | None,
        relative: Callable[..., Position] | None,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.position = None if position is None else make_sized(position, {"dim": dim})
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            EncoderBlock(
                dim=dim,
                mixer=self_attention(dim=dim, heads=heads, attend=attend, position=relative),
                feed_forward=FeedForward(dim=dim, width=hidden, activation=nn.GELU, dropout=dropout),
                dropout=dropout,
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.width = dim

    def forward(
        self, x: Float[Tensor, "n d"], sequences: Int[Tensor, " n"], lengths: Int[Tensor, " s"], first: bool = False
    ) -> Float[Tensor, "m d"]:
        """Encodes packed sequences.

        Args:
            x: Rows of all sequences, one sequence after another.
            sequences: Index of each row's sequence.
            lengths: Number of rows of each sequence, at least 1.
            first: If True, only the first row of each sequence is returned, and the last feed-forward network skips
                the others.
        """
        packing, starts = Packing(lengths, causal=False), lengths.cumsum(0) - lengths
        if self.position is not None:
            table = self.position(x.new_zeros(1, packing.longest, x.shape[1]))[0]
            x = x + F.embedding(_places(sequences, starts), table)
        x = self.dropout(x)
        for layer in self.layers:
            x = _run_block(layer, x, packing, starts if first and layer is self.layers[-1] else None)
        return self.norm(x)  # type: ignore[no-any-return]


def _run_block(block: Any, x: Float[Tensor, "n d"], packing: Packing, rows: Tensor | None) -> Float[Tensor, "m d"]:
    """Computes `EncoderBlock` for packed rows; if `rows` is given, returns these rows only."""
    query = block.mixed.branch_input(x.unsqueeze(0)).squeeze(0)
    y = mix_sequences(block.mixer, query, query, packing)
    if rows is not None:
        x, y = x[rows], y[rows]
    x = block.mixed.add_branch(x.unsqueeze(0), y.unsqueeze(0))
    fed: Tensor = block.fed.add_branch(x, block.feed_forward(block.fed.branch_input(x)))
    return fed.squeeze(0)


def _places(sequences: Int[Tensor, " n"], starts: Int[Tensor, " s"]) -> Int[Tensor, " n"]:
    """Returns the position of each row in its sequence, from 0."""
    return sequences.new_ones(len(sequences)).cumsum(0) - 1 - starts[sequences]
