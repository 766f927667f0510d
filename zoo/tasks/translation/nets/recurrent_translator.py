"""Translation by a recurrent encoder and a recurrent decoder with attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention import Attend
from zoo.attention.kernels.products import Linear
from zoo.attention.ranges import Count
from zoo.tasks.generation.decoders.state import Encoded, RecurrentState
from zoo.tasks.generation.net import GeneratingNet
from zoo.tasks.translation.batch import Source


class RecurrentTranslator(GeneratingNet):
    """An encoder reads the source, a decoder with attention writes the target, and a linear layer chooses its words.

    Args:
        source_words, target_words: From the data: sizes of the vocabularies.
        attend: `(dim, heads) -> Attend`, for the decoder.
        encoder: `RecurrentEncoder`, or a partial of it.
        decoder: `Bahdanau`, `Luong` or `InputFeeding`, or a partial of one of them.
    """

    def __init__(
        self,
        *,
        source_words: Count,
        target_words: Count,
        attend: Callable[[int, int], Attend],
        encoder: Callable[..., Any],
        decoder: Callable[..., Any],
    ) -> None:
        super().__init__()
        self.encoder = encoder(words=source_words)
        self.decoder = decoder(
            words=target_words,
            source_dim=self.encoder.width,
            summary_dim=self.encoder.summary_width,
            key_dim=self.encoder.key_width,
            attend=attend,
        )
        self.head = Linear(self.decoder.width, target_words)
        self.align = "decoder.attention.attend" if self.decoder.attention.width else None

    @property
    def inputs(self) -> nn.Module:
        return cast(nn.Module, self.encoder.vectors)

    def encode(self, source: Source) -> Encoded:
        """Reads the source; states are in at least fp32 under autocast too."""
        encoded: Encoded = self.encoder(source)
        return encoded

    def vocabularies(self) -> dict[str, dict[str, int]]:
        return {
            "source_tokens": {"encoder.vectors.table.weight": 0},
            "target_tokens": {"decoder.vectors.table.weight": 0, "head.weight": 0, "head.bias": 0},
        }

    def features(self, source: Source, read: Int[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        encoded = self.encode(source)
        with torch.autocast(read.device.type, enabled=False):  # as `Recurrent` computes
            found: Tensor = self.decoder.features(encoded, read)
        return found

    def start(self, source: Source) -> RecurrentState:
        state: RecurrentState = self.decoder.start(self.encode(source))
        return state

    def step(self, tokens: Int[Tensor, "b w"], state: RecurrentState) -> tuple[Float[Tensor, "b w v"], RecurrentState]:
        with torch.autocast(tokens.device.type, enabled=False):
            features, state = self.decoder.step(tokens, state)
        return self.head(features), state

    def reorder(self, state: RecurrentState, beams: Int[Tensor, "b w2"]) -> RecurrentState:
        return state.reorder(beams)

    def select(self, state: RecurrentState, sentences: Int[Tensor, " s"]) -> RecurrentState:
        return state.select(sentences)

    def covered(self, state: RecurrentState) -> Float[Tensor, "b w k"]:
        return state.covered
