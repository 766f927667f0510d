"""The rows of recordings without padding, and the stages of listeners, which read them.

A stage computes all recordings of a batch at once, or with `hear` one recording in parts, whose results are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import DenseSupport
from zoo.attention.dropout import Dropout
from zoo.nn.rnn.modules import Kind, Recurrent, Running, padded_rows
from zoo.tasks.seq2seq.targets import real
from zoo.types import PositiveInt, Probability, validate_ranges


@dataclass(frozen=True, eq=False)
class RaggedFrames:
    """Rows of all recordings of a batch, one recording after another.

    Args:
        x: The rows.
        lengths: Number of rows of each recording, at least one.
        recordings: Number of each row's recording.
        places: Number of each row in its recording.
    """

    x: Float[Tensor, "n d"]
    lengths: Int[Tensor, " b"]
    recordings: Int[Tensor, " n"]
    places: Int[Tensor, " n"]

    @classmethod
    def from_padded(cls, padded: Float[Tensor, "b t d"], lengths: Int[Tensor, " b"]) -> RaggedFrames:
        """Returns the rows that are not padding."""
        numbers = number_rows(lengths)
        return cls(padded[numbers], lengths, *numbers)

    @property
    def last(self) -> Int[Tensor, " b"]:
        """Index of the last row of each recording."""
        return self.lengths.cumsum(0) - 1

    def replace_rows(self, x: Float[Tensor, "n e"]) -> RaggedFrames:
        """Returns other rows of the same recordings."""
        return replace(self, x=x)

    def pad(self) -> tuple[Float[Tensor, "b k d"], DenseSupport]:
        """Returns the rows of each recording with zeros behind them, and the support of attention to them."""
        shape = torch.Size((len(self.lengths), int(self.lengths.max()) if len(self.lengths) else 0))
        padded = padded_rows(self.x, self.recordings * shape[1] + self.places, shape)
        return padded, DenseSupport.from_key_mask(real(self.lengths, shape[1]))


@validate_ranges
class StackedFrames(nn.Module):
    """[x_j; x_{j+1}; ...]: neighbouring rows as one. Zeros stand for those that are missing at the end of a recording.

    Args:
        count: Number of rows that become one.
    """

    def __init__(self, count: PositiveInt) -> None:
        super().__init__()
        self.stride = count

    def forward(self, rows: RaggedFrames) -> RaggedFrames:
        lengths, x = shorten_lengths(rows.lengths, self.stride), rows.x
        if bool((lengths * self.stride != rows.lengths).any()):
            at = (lengths.cumsum(0) - lengths)[rows.recordings] * self.stride + rows.places
            x = x.new_zeros(int(lengths.sum()) * self.stride, x.shape[1]).index_copy(0, at, x)
        return RaggedFrames(x.view(-1, self.stride * x.shape[1]), lengths, *number_rows(lengths))

    def hear(
        self, x: Float[Tensor, "n d"], left: Float[Tensor, "m d"] | None, *, last: bool
    ) -> tuple[Float[Tensor, "k e"], Float[Tensor, "r d"]]:
        """Joins the next rows of a recording; `left` are rows that wait for others."""
        x = x if left is None else torch.cat([left, x])
        x = F.pad(x, (0, 0, 0, -len(x) % self.stride)) if last else x
        whole = len(x) // self.stride * self.stride
        return x[:whole].reshape(-1, self.stride * x.shape[1]), x[whole:]


@validate_ranges
class Convolved(nn.Module):
    """relu(W x + b) of the rows around each `stride`-th one; beyond the ends of a recording are zeros.

    Recordings are laid out behind each other with zeros between them, so that one convolution computes all of them.

    Args:
        dim: Width of a row.
        out: Width of the result.
        size: Number of rows that a filter covers.
        stride: One row of so many remains.
    """

    def __init__(self, *, dim: PositiveInt, out: PositiveInt, size: PositiveInt = 3, stride: PositiveInt = 2) -> None:
        super().__init__()
        if size < stride:
            raise ValueError(f"filters of {size} rows leave out some of each {stride}: make size larger")
        self.filters = nn.Conv1d(dim, out, size, stride)
        self.size, self.stride = size, stride
        self.before, self.after = (size - 1) // 2, size // 2

    def forward(self, rows: RaggedFrames) -> RaggedFrames:
        room = shorten_lengths(
            rows.lengths + self.after, self.stride
        )  # rows of the result from one recording to the next
        starts, lengths = room.cumsum(0) - room, shorten_lengths(rows.lengths, self.stride)
        x = rows.x.new_zeros(self.before + int(room.sum()) * self.stride + self.after, rows.x.shape[1])
        x = x.index_copy(0, starts[rows.recordings] * self.stride + self.before + rows.places, rows.x)
        recordings, places = number_rows(lengths)
        return RaggedFrames(self._filter(x).index_select(0, starts[recordings] + places), lengths, recordings, places)

    def hear(
        self, x: Float[Tensor, "n d"], left: Float[Tensor, "m d"] | None, *, last: bool
    ) -> tuple[Float[Tensor, "k e"], Float[Tensor, "r d"]]:
        """Filters the next rows of a recording; `left` are rows that later ones need."""
        first = x.new_zeros(self.before, x.shape[1]) if left is None else left
        x = torch.cat([first, x, x.new_zeros(self.after if last else 0, x.shape[1])])
        count = max(0, len(x) - self.size + self.stride) // self.stride
        found = self._filter(x) if count else x.new_zeros(0, len(self.filters.weight))
        return found, x[count * self.stride :]

    def _filter(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "m e"]:
        return F.relu(self.filters(x.t().unsqueeze(0))).squeeze(0).t()


@validate_ranges
class RNNLayers(nn.Module):
    """Recurrent layers.

    Args:
        dim, hidden, kind, layers, bidirectional: See `Recurrent`.
        dropout: Of the input and between layers.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        hidden: PositiveInt,
        kind: Kind,
        layers: PositiveInt = 1,
        bidirectional: bool,
        dropout: Probability,
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.recurrent = Recurrent(
            dim=dim, hidden=hidden, kind=kind, layers=layers, dropout=dropout, bidirectional=bidirectional
        )

    def forward(self, rows: RaggedFrames) -> RaggedFrames:
        x = self.recurrent(self.dropout(rows.x), rows.recordings, rows.lengths)
        return rows.replace_rows(x)

    def hear(
        self, x: Float[Tensor, "n d"], running: Running | None, *, last: bool
    ) -> tuple[Float[Tensor, "n e"], Running | None]:
        """Reads the next rows of a recording; `running` are the states after those before."""
        return self.recurrent.resume(self.dropout(x), running)


def number_rows(lengths: Int[Tensor, " b"]) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Returns the number of each row's recording, and its number there."""
    recordings = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    starts = lengths.cumsum(0) - lengths
    return recordings, torch.arange(len(recordings), device=lengths.device) - starts[recordings]


def shorten_lengths(lengths: Int[Tensor, " b"], by: int) -> Int[Tensor, " b"]:
    """Returns the number of rows if each `by` of them become one, the last of fewer."""
    return (lengths + (by - 1)).div(by, rounding_mode="floor")
