"""Translation by a recurrent encoder and a recurrent decoder with attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from torch import nn

from zoo.attention import Attention
from zoo.nn.seq2seq.rnn_encoder_decoder import RNNEncoderDecoder
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class RecurrentTranslator(RNNEncoderDecoder):
    """A `RNNEncoderDecoder` whose source is a text.

    Args:
        source_words, target_words: From the data: sizes of the vocabularies.
        attend: `(dim, heads) -> Attention`, for the decoder.
        encoder: `RecurrentEncoder`, or a partial of it.
        decoder: `Bahdanau`, `Luong` or `InputFeeding`, or a partial of one of them.
    """

    def __init__(
        self,
        *,
        source_words: PositiveInt,
        target_words: PositiveInt,
        attend: Callable[[int, int], Attention],
        encoder: Callable[..., Any],
        decoder: Callable[..., Any],
    ) -> None:
        super().__init__(encoder=encoder(words=source_words), tokens=target_words, attend=attend, decoder=decoder)

    @property
    def inputs(self) -> nn.Module:
        return cast(nn.Module, self.encoder.vectors)

    def vocabularies(self) -> dict[str, dict[str, int]]:
        return {"source_tokens": {"encoder.vectors.table.weight": 0}, **super().vocabularies()}
