"""Listen, Attend and Spell: a listener, and a speller that attends to it (Chan et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from torch import nn

from zoo.attention import Attention
from zoo.nn.seq2seq.rnn_encoder_decoder import RNNEncoderDecoder
from zoo.tasks.speech.models.ctc import CTC
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class ListenAttendSpell(RNNEncoderDecoder):
    """A `RNNEncoderDecoder` whose encoder is a listener.

    The paper's speller is an LSTM that reads the context of the step before, as `InputFeeding` does; `Bahdanau` is that
    of Chorowski et al. 2015.

    Args:
        features: From the data: width of a frame.
        tokens: From the data: size of the vocabulary.
        attend: `(dim, heads) -> Attention`, for the speller.
        listener: `PyramidalRNNEncoder`, `ConvRNNEncoder` or `TransformerSpeechEncoder`, or a partial of one of them.
        decoder: The speller: `Bahdanau`, `Luong` or `InputFeeding`, or a partial of one of them.
        ctc: Whether the listener has a CTC branch, whose loss and whose weight in a search are the task's.
    """

    def __init__(
        self,
        *,
        features: PositiveInt,
        tokens: PositiveInt,
        attend: Callable[[int, int], Attention],
        listener: Callable[..., Any],
        decoder: Callable[..., Any],
        ctc: bool = False,
    ) -> None:
        super().__init__(encoder=listener(features=features), tokens=tokens, attend=attend, decoder=decoder)
        self.ctc = CTC(width=self.encoder.width, tokens=tokens) if ctc else None
        self.stride: int = self.encoder.stride
        """Number of frames of a place that is attended to."""

    @property
    def inputs(self) -> nn.Module:
        return cast(nn.Module, self.encoder.read)

    def vocabularies(self) -> dict[str, dict[str, int]]:
        found = super().vocabularies()
        if self.ctc is not None:
            found["target_tokens"] |= {"ctc.head.weight": 0, "ctc.head.bias": 0}
        return found
