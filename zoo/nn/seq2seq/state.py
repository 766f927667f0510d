"""What a recurrent decoder reads from, and what it passes from one step to the next."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention import DenseSupport, KVCache
from zoo.attention.attention_state import select_beams


@dataclass(frozen=True, eq=False)
class Encoded:
    """A source as an encoder returns it: words, frames or regions of a picture.

    Args:
        states: A state for each place, of which contexts are made.
        support: Support that is False at padding.
        summary: One vector for the whole source, of which the first state of a decoder is made.
        keys: What places are compared by. Default: their states.
    """

    states: Float[Tensor, "b k s"]
    support: DenseSupport
    summary: Float[Tensor, "b m"]
    keys: Float[Tensor, "b k e"] | None = None


@dataclass(frozen=True, eq=False)
class RecurrentState:
    """The state of a recurrent decoder, of w hypotheses for each of b sentences.

    Args:
        layers: The states of each layer: one tensor for a GRU; for an LSTM, what it gives and its cell.
        memory: Prepared keys and values of the source, which the hypotheses of a sentence share, and their attention.
        fed: What the step before returned, for decoders that read it (input feeding).
        position: Number of steps so far.
    """

    layers: tuple[tuple[Float[Tensor, "b w d"], ...], ...]
    memory: KVCache
    fed: Float[Tensor, "b w d"] | None = None
    position: int = 0

    @property
    def top(self) -> Float[Tensor, "b w d"]:
        """The hidden state of the last layer."""
        return self.layers[-1][0]

    @property
    def coverage(self) -> Float[Tensor, "b w k"]:
        """The weight that each place of the source has had in all steps; 1 at padding."""
        attention = self.memory.attention
        if attention is None:
            raise ValueError("coverage is the sum of attention weights, and attention=none has none")
        total, permitted = attention.total.squeeze(1), self.memory.support.permitted
        return total if permitted is None else total.masked_fill(~permitted.squeeze(1), 1.0)

    def reorder(self, beams: Int[Tensor, "b w2"]) -> RecurrentState:
        """Returns the state of the selected hypotheses of each sentence; the keys of the source are not copied."""
        layers = tuple(tuple(select_beams(each, beams) for each in layer) for layer in self.layers)
        fed = None if self.fed is None else select_beams(self.fed, beams)
        return replace(self, layers=layers, memory=self.memory.select_rows(beams), fed=fed)

    def select(self, sentences: Int[Tensor, " s"]) -> RecurrentState:
        """Returns the state of the selected sentences, with all their hypotheses."""
        layers = tuple(tuple(each.index_select(0, sentences) for each in layer) for layer in self.layers)
        fed = None if self.fed is None else self.fed.index_select(0, sentences)
        return replace(self, layers=layers, memory=self.memory.reorder(sentences), fed=fed)
