"""Listen, Attend and Spell: a listener, and a speller that attends to it (Chan et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from torch import nn

from zoo.attention import Attend
from zoo.attention.ranges import Count
from zoo.tasks.generation.recurrent_writer import RecurrentWriter


class ListenAttendSpell(RecurrentWriter):
    """A `RecurrentWriter` whose encoder is a listener.

    The paper's speller is an LSTM that reads the context of the step before, as `InputFeeding` does; `Bahdanau` is that
    of Chorowski et al. 2015.

    Args:
        features: From the data: width of a frame.
        tokens: From the data: size of the vocabulary.
        attend: `(dim, heads) -> Attend`, for the speller.
        listener: `PyramidalListener`, `ConvolutionalListener` or `TransformerListener`, or a partial of one of them.
        decoder: The speller: `Bahdanau`, `Luong` or `InputFeeding`, or a partial of one of them.
    """

    def __init__(
        self,
        *,
        features: Count,
        tokens: Count,
        attend: Callable[[int, int], Attend],
        listener: Callable[..., Any],
        decoder: Callable[..., Any],
    ) -> None:
        super().__init__(encoder=listener(features=features), tokens=tokens, attend=attend, decoder=decoder)
        self.stride: int = self.encoder.stride
        """Number of frames of a place that is attended to."""

    @property
    def inputs(self) -> nn.Module:
        return cast(nn.Module, self.encoder.read)
