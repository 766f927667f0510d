"""Recurrent networks over packed sequences: rows of all sequences, one sequence after another, without padding."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from zoo.attention.cpu import is_enabled
from zoo.attention.dropout import Dropout
from zoo.attention.kernels.dtypes import upcast
from zoo.nn.rnn.kernels import GRU, LSTM, Cell, Steps, recurrence
from zoo.types import PositiveInt, Probability, validate_ranges

Kind = Literal["gru", "lstm"]
_CELLS: dict[str, type[Cell]] = {"gru": GRU, "lstm": LSTM}
_LAYERS: dict[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}
_PARTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
_MOST_PADDED = 1.5
"""The most rows with padding for each row without it; the kernel is at least twice as fast as one by steps."""
Running = tuple[Any, ...]
"""States of each layer after the rows so far, as PyTorch's modules take and return them."""


@validate_ranges
class Recurrent(nn.Module):
    """[forward states; backward states] of each row (Yang et al. 2016, section 2.2, word and sentence encoder).

    Each layer has the parameters of an `nn.GRU` or `nn.LSTM`. On CPUs, `recurrence` computes both directions together,
    and an LSTM in fp32 whose sequences are of similar lengths runs on padded ones (`padded_lstm`), two to four times as
    fast; on other devices and under `torch.compile`, PyTorch's module runs on the same packed rows.

    Args:
        dim: Width of the input.
        hidden: Width of the state of one direction.
        kind: "gru" or "lstm".
        layers: Number of layers.
        dropout: Dropout between layers.
        bidirectional: If False, there are forward states alone.
    """

    def __init__(
        self,
        *,
        dim: PositiveInt,
        hidden: PositiveInt,
        kind: Kind = "gru",
        layers: PositiveInt = 1,
        dropout: Probability = 0.0,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        if kind not in _LAYERS:
            raise ValueError(f"kind is 'gru' or 'lstm', got {kind!r}")
        self.cell = _CELLS[kind]
        self.directions = 2 if bidirectional else 1
        self.width = self.directions * hidden
        self.layers = nn.ModuleList(
            _LAYERS[kind](self.width if number else dim, hidden, bidirectional=bidirectional)
            for number in range(layers)
        )
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "n d"], sequences: Int[Tensor, " n"], lengths: Int[Tensor, " s"]
    ) -> Float[Tensor, "n {self.width}"]:
        """Encodes packed sequences in at least fp32, also under autocast; returns the parameters' dtype.

        Args:
            x: Rows of all sequences, one sequence after another.
            sequences: Index of each row's sequence.
            lengths: Number of rows of each sequence, at least 1.
        """
        dtype = next(self.parameters()).dtype
        is_padded = self.cell is LSTM and _goes_by_steps(x) and _pads(x, dtype, lengths)
        steps = None if is_padded else Steps.from_sequences(sequences, lengths, directions=self.directions)
        with torch.autocast(x.device.type, enabled=False):
            for number, layer in enumerate(self.layers):
                x = self.dropout(x) if number else x
                if steps is None:
                    x = padded_lstm(cast(nn.LSTM, layer), x.to(dtype), sequences, lengths)
                elif _goes_by_steps(x):
                    x = self._run_steps(layer, x, steps)
                else:
                    x = run_packed(layer, x.to(dtype), steps)
        return x.to(dtype)

    def resume(
        self, x: Float[Tensor, "n d"], running: Running | None
    ) -> tuple[Float[Tensor, "n {self.width}"], Running | None]:
        """Encodes the next rows of one sequence; `bidirectional` is False.

        Args:
            running: The states after the rows so far. Default: these are the first.

        Returns:
            The states of these rows, and those after them.
        """
        if self.directions > 1:
            raise ValueError("a sequence that arrives in parts cannot be read backwards: give bidirectional=False")
        if not len(x):
            return x.new_zeros(0, self.width), running
        after = []
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(next(self.parameters()).dtype)
            for number, layer in enumerate(self.layers):
                x = self.dropout(x) if number else x
                x, states = layer(x, None if running is None else running[number])
                after.append(states)
        return x, tuple(after)

    def _run_steps(self, layer: nn.Module, x: Tensor, steps: Steps) -> Tensor:
        x = upcast(x)
        to_gates, between, bias, bias_between = (
            torch.stack([getattr(layer, part + end) for end in ("", "_reverse")[: self.directions]]).to(x.dtype)
            for part in _PARTS
        )
        return recurrence(self.cell, x, steps, to_gates, between, bias, bias_between)


def padded_rows(rows: Float[Tensor, "n d"], at: Int[Tensor, " n"], shape: torch.Size) -> Float[Tensor, "b k d"]:
    """Returns rows at their places in a padded batch, and zeros elsewhere."""
    return rows.new_zeros(shape.numel(), rows.shape[1]).index_copy(0, at, rows).view(*shape, rows.shape[1])


def run_packed(layer: nn.Module, x: Float[Tensor, "n d"], steps: Steps) -> Float[Tensor, "n e"]:
    """Applies PyTorch's module to a `PackedSequence` of the rows."""
    states, _ = layer(PackedSequence(x.index_select(0, steps.order[0]), torch.tensor(steps.sizes)))
    found: Tensor = states.data
    return found.index_select(0, steps.places[0])


def padded_lstm(
    layer: nn.LSTM, x: Float[Tensor, "n d"], sequences: Int[Tensor, " n"], lengths: Int[Tensor, " s"]
) -> Float[Tensor, "n e"]:
    """Applies an LSTM to padded sequences, for which alone PyTorch has a kernel of oneDNN.

    The backward states are the forward states of the sequences turned around, so that no row reads padding.
    """
    count, longest = len(lengths), int(lengths.max())
    if len(x) == count * longest:  # nothing to pad: time first, without an index for each row
        steps = x.view(count, longest, -1).transpose(0, 1)
        states = [_run(layer, "", steps.contiguous())]
        states += [_run(layer, "_reverse", steps.flip(0)).flip(0)] if layer.bidirectional else []
        return torch.cat(states, 2).transpose(0, 1).flatten(0, 1)
    at, found = torch.arange(len(x), device=x.device) - (lengths.cumsum(0) - lengths)[sequences], []
    for end in ("", "_reverse")[: 2 if layer.bidirectional else 1]:
        places = (lengths[sequences] - 1 - at if end else at) * count + sequences
        padded = x.new_zeros(longest * count, x.shape[1]).index_copy(0, places, x).view(longest, count, -1)
        found.append(_run(layer, end, padded).flatten(0, 1).index_select(0, places))
    return torch.cat(found, 1)


def _run(layer: nn.LSTM, end: str, x: Float[Tensor, "t s d"]) -> Float[Tensor, "t s h"]:
    """Runs one direction of an LSTM, whose parameters' names have this ending, from the first step to the last."""
    nothing = x.new_zeros(1, x.shape[1], layer.hidden_size)
    weights = [getattr(layer, part + end) for part in _PARTS]
    with_gradient = torch.is_grad_enabled()  # without it, the kernel keeps nothing for a backward pass
    found: Tensor = torch.lstm(x, (nothing, nothing), weights, True, 1, 0.0, with_gradient, False, False)[0]
    return found


def _pads(x: Tensor, dtype: torch.dtype, lengths: Int[Tensor, " s"]) -> bool:
    """Returns True if an LSTM on padded sequences is faster than one by steps."""
    if dtype != torch.float32 or not len(x) or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    return len(lengths) * int(lengths.max()) <= _MOST_PADDED * len(x)


def _goes_by_steps(x: Tensor) -> bool:
    """Returns True on CPUs, unless a graph is compiled, which cannot hold a function with its own backward pass."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and is_enabled("recurrence")
