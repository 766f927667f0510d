"""A net of any encoder and a recurrent decoder with attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from zoo.attention import Attention
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.nn.seq2seq.state import Encoded, RecurrentState
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class RNNEncoderDecoder(Seq2SeqModel):
    """An encoder reads the source, a decoder with attention writes the text, and a linear layer chooses its tokens.

    Args:
        encoder: `source -> Encoded`, with `width`, `summary_width` and `key_width`.
        tokens: Size of the vocabulary that is written.
        attend: `(dim, heads) -> Attention`, for the decoder.
        decoder: `Bahdanau`, `Luong` or `InputFeeding`, or a partial of one of them.
    """

    def __init__(
        self,
        *,
        encoder: nn.Module,
        tokens: PositiveInt,
        attend: Callable[[int, int], Attention],
        decoder: Callable[..., Any],
    ) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.decoder = decoder(
            words=tokens,
            source_dim=encoder.width,
            summary_dim=encoder.summary_width,
            key_dim=encoder.key_width,
            attend=attend,
        )
        self.head = nn.Linear(self.decoder.width, tokens)
        self.align = "decoder.attention.attend" if self.decoder.attention.width else None

    def encode(self, source: Any) -> Encoded:
        """Reads the source; states are in at least fp32 under autocast too. What is read already stays as it is."""
        encoded: Encoded = source if isinstance(source, Encoded) else self.encoder(source)
        return encoded

    def vocabularies(self) -> dict[str, dict[str, int]]:
        return {"target_tokens": {"decoder.vectors.table.weight": 0, "head.weight": 0, "head.bias": 0}}

    def features(self, source: Any, read: Int[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        encoded = self.encode(source)
        with torch.autocast(read.device.type, enabled=False):  # as `Recurrent` computes
            found: Tensor = self.decoder.features(encoded, read)
        return found

    def start(self, source: Any) -> RecurrentState:
        encoded = self.encode(source)
        with torch.autocast(encoded.states.device.type, enabled=False):
            state: RecurrentState = self.decoder.start(encoded)
        return state

    def step(self, tokens: Int[Tensor, "b w"], state: RecurrentState) -> tuple[Float[Tensor, "b w v"], RecurrentState]:
        with torch.autocast(tokens.device.type, enabled=False):
            features, state = self.decoder.step(tokens, state)
        return self.head(features), state

    def may_end(self, state: RecurrentState) -> Bool[Tensor, "b w"] | None:
        passed = self.must_end(state)
        return self.decoder.attention.sees_last_key(state.memory) if passed is None else passed

    def must_end(self, state: RecurrentState) -> Bool[Tensor, "b w"] | None:
        return self.decoder.attention.is_past_end(state.memory)  # type: ignore[no-any-return]

    def coverage(self, state: RecurrentState) -> Float[Tensor, "b w k"]:
        return state.coverage
