"""The recurrent layers of a decoder, where the input of a step depends on the step before."""

from __future__ import annotations

from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.dropout import Dropout
from zoo.attention.ranges import Count, Rate
from zoo.tasks.generation.decoders.cells import Kind, Layer
from zoo.tasks.generation.decoders.products import Products, Weights, of_words

States = tuple[tuple[Float[Tensor, "r d"], ...], ...]


class Stack(nn.Module):
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
        self, *, word_dim: Count, fed_dim: int, hidden: Count, kind: Kind, layers: Count, dropout: Rate
    ) -> None:
        super().__init__()
        self.word_dim = word_dim
        self.layers = nn.ModuleList(
            Layer(input_dim=hidden if number else word_dim + fed_dim, dim=hidden, kind=kind) for number in range(layers)
        )
        self.dropout = Dropout(dropout)

    def loop(self, words: Float[Tensor, "n r e"], weights: Weights) -> Loop:
        """Computes what the words of all steps contribute, before the first step."""
        return Loop(self, words, weights)


class Loop:
    """The steps of a stack."""

    def __init__(self, stack: Stack, words: Float[Tensor, "n r e"], weights: Weights) -> None:
        self.stack = stack
        steps, rows, width = words.shape
        self.of_input, self.of_state = [], []
        for number, layer in enumerate(cast("list[Layer]", list(stack.layers))):
            weight, bias = layer.weight_ih, layer.bias_ih
            base = of_words(words, weight[:, :width], bias, weights) if not number else bias.expand(steps, rows, -1)
            self.of_input.append(Products(base, weight if number else weight[:, width:], weights))
            self.of_state.append(Products(layer.bias_hh.expand(steps, rows, -1), layer.weight_hh, weights))

    def at(self, step: int, fed: Float[Tensor, "r f"], states: States) -> States:
        """Returns the states after a step."""
        after: list[tuple[Tensor, ...]] = []
        x = fed
        for number, (layer, before) in enumerate(zip(self.stack.layers, states, strict=True)):
            x = self.stack.dropout(x) if number else x
            after.append(layer(self.of_input[number].at(step, x), self.of_state[number].at(step, before[0]), before))
            x = after[-1][0]
        return tuple(after)
