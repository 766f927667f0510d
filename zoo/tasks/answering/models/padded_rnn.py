"""Recurrent networks over padded texts."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from zoo.nn.rnn.modules import Kind, Recurrent, padded_rows
from zoo.tasks.seq2seq.source import Source
from zoo.types import AnyFloat, PositiveInt, Probability, validate_ranges


@validate_ranges
class PaddedRecurrent(nn.Module):
    """[forward states; backward states] of each word of padded texts, of real words alone; zeros at padding.

    Args:
        dim: Width of the input.
        hidden: Width of the state of one direction.
        cell: "gru" or "lstm".
        layers: Number of layers.
        dropout: Dropout between layers.
        forget: Second bias of an LSTM's forget gates before training. With 1 (Jozefowicz et al. 2015, section 2.1) a
            state already tells the words beside it then, which attention compares. Default: PyTorch's, about 0.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        hidden: PositiveInt,
        cell: Kind = "lstm",
        layers: PositiveInt = 1,
        dropout: Probability = 0.0,
        forget: AnyFloat | None = None,
    ) -> None:
        super().__init__()
        self.recurrent = Recurrent(dim=dim, hidden=hidden, kind=cell, layers=layers, dropout=dropout)
        self.width = self.recurrent.width
        if forget is not None and cell == "lstm":
            for name, bias in self.recurrent.named_parameters():
                if ".bias_hh_" in name:  # in the order of PyTorch: input, forget, cell and output gates
                    nn.init.constant_(bias.data[hidden : 2 * hidden], forget)

    def forward(self, x: Float[Tensor, "b n d"], text: Source) -> Float[Tensor, "b n {self.width}"]:
        at = text.is_real.flatten().nonzero().squeeze(1)
        owners = at.div(x.shape[1], rounding_mode="floor")
        rows = self.recurrent(x.flatten(0, 1)[at], owners, text.lengths)
        return padded_rows(rows, at, text.is_real.shape)
