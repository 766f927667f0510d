"""The state that a recurrent decoder begins with."""

from __future__ import annotations

from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from zoo.nn.rnn.cells import Kind
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class InitialState(nn.Module):
    """s_0 = tanh(W m), of a summary m of the source (Bahdanau et al. 2015, appendix A.2.2); an LSTM's cell is V m.

    The paper's m is the backward state at the first word.

    Args:
        summary_dim: Width of m.
        hidden: Width of the state.
        kind: "gru" or "lstm".
        layers: Number of layers.
    """

    def __init__(self, *, summary_dim: PositiveInt, hidden: PositiveInt, kind: Kind, layers: PositiveInt) -> None:
        super().__init__()
        self.parts = 1 if kind == "gru" else 2
        self.layers = layers
        self.project = nn.Linear(summary_dim, layers * self.parts * hidden)

    def forward(self, summary: Float[Tensor, "b m"]) -> tuple[tuple[Float[Tensor, "b 1 d"], ...], ...]:
        """Returns the states of each layer, of one hypothesis."""
        found = self.project(summary).unsqueeze(1).chunk(self.layers * self.parts, -1)
        pairs = [found[number : number + self.parts] for number in range(0, len(found), self.parts)]
        return tuple(cast("tuple[Tensor, ...]", (pair[0].tanh(), *pair[1:])) for pair in pairs)
