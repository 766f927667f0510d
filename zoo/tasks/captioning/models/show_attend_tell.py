"""Captions by a recurrent decoder that attends to the cells of a picture (Xu et al. 2015)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from torch import nn

from zoo.attention import Attention
from zoo.nn.seq2seq.rnn_encoder_decoder import RNNEncoderDecoder
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class ShowAttendTell(RNNEncoderDecoder):
    """A `RNNEncoderDecoder` whose source is a picture.

    The paper's decoder is `Bahdanau` with an LSTM, a selector and a deep output.

    Args:
        tokens: From the data: size of the vocabulary.
        height, width: From the data: size of the pictures.
        attend: `(dim, heads) -> Attention`, for the decoder.
        encoder: `PlainCNN` or another `ImageEncoder`, or a partial of it.
        decoder: `Bahdanau`, `Luong` or `InputFeeding`, or a partial of one of them.
    """

    def __init__(
        self,
        *,
        tokens: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        attend: Callable[[int, int], Attention],
        encoder: Callable[..., Any],
        decoder: Callable[..., Any],
    ) -> None:
        super().__init__(encoder=encoder(height=height, width=width), tokens=tokens, attend=attend, decoder=decoder)

    @property
    def inputs(self) -> nn.Module:
        return cast(nn.Module, self.encoder.read)
