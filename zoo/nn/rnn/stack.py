"""The recurrent layers of a decoder, where the input of a step depends on the step before."""

from __future__ import annotations

from typing import cast

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.dropout import Dropout
from zoo.nn.rnn.cells import Kind, RNNCellWeights
from zoo.nn.rnn.deferred_matmul import DeferredLinear, Product, repeat_linear
from zoo.types import PositiveInt, Probability, validate_ranges

States = tuple[tuple[Float[Tensor, "r d"], ...], ...]


@validate_ranges
class RNNStack(nn.Module):
    """Layers that read, at each step, a word and a vector that depends on the step before.

    Args:
        word_dim: Width of a word.
        fed_dim: Width of the other vector.
        hidden: Width of the state.
        kind: "gru" or "lstm".
        layers: Number of layers.
        dropout: Of what one layer gives to the next.
    """

    def __init__(
        self,
        *,
        word_dim: PositiveInt,
        fed_dim: int,
        hidden: PositiveInt,
        kind: Kind,
        layers: PositiveInt,
        dropout: Probability,
    ) -> None:
        super().__init__()
        self.word_dim = word_dim
        self.layers = nn.ModuleList(
            RNNCellWeights(input_dim=hidden if number else word_dim + fed_dim, dim=hidden, kind=kind)
            for number in range(layers)
        )
        self.dropout = Dropout(dropout)

    def loop(self, words: Float[Tensor, "n r e"]) -> StepLoop:
        """Computes what the words of all steps contribute, before the first step."""
        return StepLoop(self, words)


class StepLoop:
    """The steps of a stack."""

    def __init__(self, stack: RNNStack, words: Float[Tensor, "n r e"]) -> None:
        self.stack = stack
        steps, rows, width = words.shape
        self.of_input: list[Product] = []
        self.of_state: list[Product] = []
        for number, layer in enumerate(cast("list[RNNCellWeights]", list(stack.layers))):
            weight, bias = layer.weight_ih, layer.bias_ih
            if number:
                self.of_input.append(repeat_linear(bias, weight, steps, rows))
            else:
                of_word = F.linear(words, weight[:, :width], bias)
                self.of_input.append(DeferredLinear(of_word, weight[:, width:]).step)
            self.of_state.append(repeat_linear(layer.bias_hh, layer.weight_hh, steps, rows))

    def step(self, step: int, fed: Float[Tensor, "r f"], states: States) -> States:
        """Returns the states after a step."""
        after: list[tuple[Tensor, ...]] = []
        x = fed
        for number, (layer, before) in enumerate(zip(self.stack.layers, states, strict=True)):
            x = self.stack.dropout(x) if number else x
            after.append(layer(self.of_input[number](step, x), self.of_state[number](step, before[0]), before))
            x = after[-1][0]
        return tuple(after)
