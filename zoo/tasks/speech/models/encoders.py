"""Listeners: encoders of recordings, which make one place of several frames and compute no padding.

A listener has `stride`, the number of frames of a place, and `width`, `summary_width` and `key_width` for a decoder.
Place j begins at frame j times `stride`; the last place may have fewer frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import AttentionFactory, Position, ScaledDot, Sinusoidal, Softmax
from zoo.attention.dropout import Dropout
from zoo.attention.factories import make_sized
from zoo.attention.kernels.dtypes import upcast
from zoo.nn.rnn.modules import Kind
from zoo.nn.seq2seq.state import Encoded
from zoo.nn.seq2seq.transformer import Norm, SelfAttend, TransformerEncoder
from zoo.tasks.speech.batch import Frames
from zoo.tasks.speech.models.ragged import Convolved, RaggedFrames, RNNLayers, StackedFrames
from zoo.types import PositiveInt, Probability, validate_ranges

_SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)
Heard = tuple[Any, ...]
"""What each stage of a listener keeps of a recording so far."""


class RNNSpeechEncoder(nn.Module):
    """Stages that end with recurrent layers.

    The summary is the forward state of the last place and the backward state of the first. Without backward states it
    is zero, so that a decoder can begin before a recording ends.

    Args:
        stages: `StackedFrames`, `Convolved` and `RNNLayers`.
        width: Width of the states.
        bidirectional: Whether the layers are.
        out_dropout: Of the states.
    """

    def __init__(self, stages: Sequence[nn.Module], *, width: int, bidirectional: bool, out_dropout: float) -> None:
        super().__init__()
        self.read = nn.Identity()
        self.stages = nn.ModuleList(stages)
        self.bidirectional = bidirectional
        self.dropout = Dropout(out_dropout)
        self.width = self.summary_width = self.key_width = width
        self.stride = prod(getattr(stage, "stride", 1) for stage in stages)

    def forward(self, source: Frames) -> Encoded:
        rows = RaggedFrames.from_padded(self.read(source.features), source.lengths)
        for stage in self.stages:
            rows = stage(rows)
        summary = rows.x.new_zeros(len(source), self.width)
        if self.bidirectional:
            forward, backward = rows.x.chunk(2, -1)
            summary = torch.cat([forward[rows.last], backward[rows.last + 1 - rows.lengths]], -1)
        states, support = rows.replace_rows(self.dropout(rows.x)).pad()
        return Encoded(states, support, summary)

    def hear(
        self, x: Float[Tensor, "t f"], heard: Heard | None = None, *, last: bool = False
    ) -> tuple[Float[Tensor, "k d"], Heard]:
        """Reads the next frames of one recording; the listener is in evaluation mode, and one-directional.

        Args:
            heard: The second result of the call before. Default: these are the first frames.
            last: True if these are the last frames.

        Returns:
            The states of the places that are complete, and what later calls need.
        """
        kept = []
        for stage, own in zip(self.stages, heard or [None] * len(self.stages), strict=True):
            x, after = cast(Any, stage).hear(x, own, last=last)
            kept.append(after)
        return x, tuple(kept)


@validate_ranges
class PyramidalRNNEncoder(RNNSpeechEncoder):
    """Recurrent layers, each of which reads neighbouring rows of the one below as one (Chan et al. 2016, eq. 5).

    Zeros stand for the rows that are missing at the end of a recording. See `RNNSpeechEncoder`.

    Args:
        features: Width of a frame.
        hidden: Units of a layer in one direction (256 in the paper).
        joined: For each layer, the number of rows that it reads as one; in the paper 1, 2, 2, 2.
        cell: "lstm", as in the paper, or "gru".
        bidirectional: If False, no state depends on later frames.
        dropout: Of what one layer gives to the next.
        out_dropout: Of the states.
    """

    def __init__(
        self,
        *,
        features: PositiveInt,
        hidden: PositiveInt = 256,
        joined: Sequence[PositiveInt] = (1, 2, 2, 2),
        cell: Kind = "lstm",
        bidirectional: bool = True,
        dropout: Probability = 0.0,
        out_dropout: Probability = 0.0,
    ) -> None:
        if not joined:
            raise ValueError("joined has a number of rows for each layer: give one or more")
        width = hidden * (2 if bidirectional else 1)
        stages: list[nn.Module] = []
        for number, count in enumerate(joined):
            stages += [StackedFrames(count)] if count > 1 else []
            stages += [
                RNNLayers(
                    dim=count * (width if number else features),
                    hidden=hidden,
                    kind=cell,
                    bidirectional=bidirectional,
                    dropout=dropout if number else 0.0,
                )
            ]
        super().__init__(stages, width=width, bidirectional=bidirectional, out_dropout=out_dropout)


@validate_ranges
class ConvRNNEncoder(RNNSpeechEncoder):
    """Convolutions with a stride of 2, then recurrent layers. See `RNNSpeechEncoder`.

    A place depends on frames behind it too, as far as the filters reach.

    Args:
        features: Width of a frame.
        channels: Width of each convolution; each halves the number of rows.
        size: Number of rows that a filter covers.
        hidden: Units of a recurrent layer in one direction.
        layers: Number of recurrent layers.
        cell: "lstm" or "gru".
        bidirectional: If False, the recurrent layers read forwards alone.
        dropout: Of the input of each recurrent layer.
        out_dropout: Of the states.
    """

    def __init__(
        self,
        *,
        features: PositiveInt,
        channels: Sequence[PositiveInt] = (128, 128),
        size: PositiveInt = 3,
        hidden: PositiveInt = 256,
        layers: PositiveInt = 1,
        cell: Kind = "lstm",
        bidirectional: bool = True,
        dropout: Probability = 0.0,
        out_dropout: Probability = 0.0,
    ) -> None:
        stages: list[nn.Module] = [*_convolutions(features, channels, size)]
        stages.append(
            RNNLayers(
                dim=channels[-1] if channels else features,
                hidden=hidden,
                kind=cell,
                layers=layers,
                bidirectional=bidirectional,
                dropout=dropout,
            )
        )
        width = hidden * (2 if bidirectional else 1)
        super().__init__(stages, width=width, bidirectional=bidirectional, out_dropout=out_dropout)


@validate_ranges
class TransformerSpeechEncoder(nn.Module):
    """Convolutions with a stride of 2, positions, and blocks of self-attention. The summary is the mean of the states.

    Args:
        features: Width of a frame.
        channels: Width of each convolution; each halves the number of rows.
        size: Number of rows that a filter covers.
        dim: Width of the states.
        layers: Blocks.
        heads: Heads of each; must divide `dim`.
        hidden: Hidden units of the feed-forward networks.
        attend: `(dim, heads) -> Attention` of the self-attention, or a `MixerFactory`.
        position: Class or partial of `zoo.attention.positions` that makes what is added to the rows, or None.
        relative: Class or partial of a `Position` inside self-attention; with a `MixerFactory` it is not used.
        norm: "pre" or "post".
        dropout: Of the rows, of hidden units and of what blocks add; `attend` has that of the weights.
    """

    def __init__(
        self,
        *,
        features: PositiveInt,
        channels: Sequence[PositiveInt] = (128, 128),
        size: PositiveInt = 3,
        dim: PositiveInt = 128,
        layers: PositiveInt = 2,
        heads: PositiveInt = 4,
        hidden: PositiveInt = 256,
        attend: SelfAttend = _SOFTMAX,
        position: Callable[..., nn.Module] | None = Sinusoidal,
        relative: Callable[..., Position] | None = None,
        norm: Norm = "pre",
        dropout: Probability = 0.1,
    ) -> None:
        super().__init__()
        self.read = nn.Identity()
        self.convolutions = nn.Sequential(*_convolutions(features, channels, size))
        self.project = nn.Linear(channels[-1] if channels else features, dim)
        self.position = None if position is None else make_sized(position, {"dim": dim})
        self.dropout = Dropout(dropout)
        self.blocks = TransformerEncoder(
            dim=dim,
            layers=layers,
            heads=heads,
            hidden=hidden,
            attend=attend,
            relative=relative,
            norm=norm,
            dropout=dropout,
        )
        self.width = self.summary_width = self.key_width = dim
        self.bidirectional = True
        self.stride = 2 ** len(channels)

    def forward(self, source: Frames) -> Encoded:
        rows = self.convolutions(RaggedFrames.from_padded(self.read(source.features), source.lengths))
        x, support = rows.replace_rows(self.project(rows.x)).pad()
        x = self.dropout(x if self.position is None else self.position(x))
        states = support.zero_masked(upcast(self.blocks(x, support)).unsqueeze(1)).squeeze(1)
        return Encoded(states, support, states.sum(1) / rows.lengths.unsqueeze(1))


def _convolutions(features: int, channels: Sequence[int], size: int) -> list[Convolved]:
    widths = [features, *channels]
    return [Convolved(dim=dim, out=out, size=size) for dim, out in zip(widths, channels, strict=False)]
