"""GRU and LSTM over packed sequences, with a backward pass of their own, for CPUs.

A step computes all sequences and both directions at once. PyTorch's modules go through autograd at each step; here a
step of the backward pass takes three operations, because the derivatives of the gates are computed for all rows before
it, and the gradients of the weights by one product over all rows after it.

Rows are ordered by step: the first rows of all sequences, the longest sequence first, then their second rows, and so
on. `sizes` are the numbers of rows of the steps. The leading axis r is the direction; each direction has its own order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class Cell(Protocol):
    """A recurrent cell for `recurrence`: a pass over all steps, and its derivative."""

    gates: ClassVar[int]

    @staticmethod
    def forward(
        gates: Float[Tensor, "r n g"],
        weight: Float[Tensor, "r d g"],
        bias: Float[Tensor, "r 1 g"],
        sizes: Sequence[int],
    ) -> tuple[Float[Tensor, "r n d"], tuple[Tensor, ...]]:
        """Computes the hidden states of all rows.

        Args:
            gates: Contribution of the input to the gates; it may be overwritten.
            weight: Weight from the previous hidden state to the gates.
            bias: Bias of the same.
            sizes: Number of rows of each step.

        Returns:
            The hidden states, and the tensors that `backward` needs.
        """
        ...

    @staticmethod
    def backward(
        gradient: Float[Tensor, "r n d"],
        weight: Float[Tensor, "r g d"],
        before: Float[Tensor, "r n d"],
        kept: tuple[Tensor, ...],
        sizes: Sequence[int],
    ) -> tuple[Float[Tensor, "r n g"], Float[Tensor, "r n g"]]:
        """Computes the gradients of the hidden state's contribution to the gates, and of the input's.

        Args:
            gradient: Gradient of the hidden states.
            weight: Weight from the previous hidden state to the gates, transposed.
            before: Previous hidden state of each row.
            kept: Tensors that `forward` returned.
            sizes: Number of rows of each step.
        """
        ...


class GRU:
    """r, z = σ(x W + h U), n = tanh(x W + r (h U + b)), h' = (1 - z) n + z h (Cho et al. 2014), as in `nn.GRU`."""

    gates: ClassVar[int] = 3

    @staticmethod
    def forward(
        gates: Float[Tensor, "r n g"],
        weight: Float[Tensor, "r d g"],
        bias: Float[Tensor, "r 1 g"],
        sizes: Sequence[int],
    ) -> tuple[Float[Tensor, "r n d"], tuple[Tensor, ...]]:
        width = weight.shape[1]
        states, candidates = (gates.new_empty(*gates.shape[:2], width) for _ in range(2))
        state = gates.new_zeros(len(gates), sizes[0], width)
        for start, stop in pairwise(accumulate(sizes, initial=0)):
            state = state[:, : stop - start]
            hidden, step = torch.baddbmm(bias, state, weight), gates[:, start:stop]
            both = step[..., : 2 * width].add_(hidden[..., : 2 * width]).sigmoid_()
            candidate = candidates[:, start:stop].copy_(hidden[..., 2 * width :])
            new = step[..., 2 * width :].addcmul_(both[..., :width], candidate).tanh_()
            state = torch.lerp(new, state, both[..., width:], out=states[:, start:stop])
        return states, (gates, candidates)

    @staticmethod
    def backward(
        gradient: Float[Tensor, "r n d"],
        weight: Float[Tensor, "r g d"],
        before: Float[Tensor, "r n d"],
        kept: tuple[Tensor, ...],
        sizes: Sequence[int],
    ) -> tuple[Float[Tensor, "r n g"], Float[Tensor, "r n g"]]:
        gates, candidates = kept
        reset, update, new = gates.chunk(3, -1)
        to_new = (1.0 - update) * (1.0 - new * new)
        slope = torch.empty_like(gates)
        by_reset, by_update, by_candidate = slope.chunk(3, -1)
        torch.mul(to_new, reset, out=by_candidate)
        torch.mul(by_candidate, candidates, out=by_reset).mul_(1.0 - reset)
        torch.mul(before - new, update * (1.0 - update), out=by_update)
        found, width = gradient.clone(), gradient.shape[-1]
        later: Tensor | None = None
        steps = slope.view(*found.shape[:2], 3, width)
        for start, stop in reversed(list(pairwise(accumulate(sizes, initial=0)))):
            of_state, of_gates = found[:, start:stop], steps[:, start:stop]
            if later is not None:
                of_state[:, : later.shape[1]] += later
            of_gates.mul_(of_state.unsqueeze(2))
            if start:
                later = torch.baddbmm(of_state * update[:, start:stop], of_gates.flatten(2), weight)
        of_input = slope.clone()
        torch.mul(found, to_new, out=of_input[..., 2 * width :])
        return slope, of_input


class LSTM:
    """i, f, o = σ(x W + h U), g = tanh(x W + h U), c' = f c + i g, h' = o tanh(c') (Hochreiter & Schmidhuber 1997).

    The forget gate is from Gers et al. (2000). The equations are those of `nn.LSTM`.
    """

    gates: ClassVar[int] = 4

    @staticmethod
    def forward(
        gates: Float[Tensor, "r n g"],
        weight: Float[Tensor, "r d g"],
        bias: Float[Tensor, "r 1 g"],
        sizes: Sequence[int],
    ) -> tuple[Float[Tensor, "r n d"], tuple[Tensor, ...]]:
        width = weight.shape[1]
        states, cells, bounded = (gates.new_empty(*gates.shape[:2], width) for _ in range(3))
        state = cell = gates.new_zeros(len(gates), sizes[0], width)
        for start, stop in pairwise(accumulate(sizes, initial=0)):
            state, cell = state[:, : stop - start], cell[:, : stop - start]
            step = gates[:, start:stop].add_(torch.baddbmm(bias, state, weight))
            step[..., : 2 * width].sigmoid_()
            step[..., 2 * width : 3 * width].tanh_()
            step[..., 3 * width :].sigmoid_()
            enter, forget, new, out = step.chunk(4, -1)
            cell = torch.mul(forget, cell, out=cells[:, start:stop]).addcmul_(enter, new)
            state = torch.mul(out, torch.tanh(cell, out=bounded[:, start:stop]), out=states[:, start:stop])
        return states, (gates, cells, bounded)

    @staticmethod
    def backward(
        gradient: Float[Tensor, "r n d"],
        weight: Float[Tensor, "r g d"],
        before: Float[Tensor, "r n d"],
        kept: tuple[Tensor, ...],
        sizes: Sequence[int],
    ) -> tuple[Float[Tensor, "r n g"], Float[Tensor, "r n g"]]:
        gates, cells, bounded = kept
        enter, forget, new, out = gates.chunk(4, -1)
        to_cell = out * (1.0 - bounded * bounded)
        slope, width = torch.empty_like(gates), gradient.shape[-1]
        by_enter, by_forget, by_new, by_out = slope.chunk(4, -1)
        torch.mul(new, enter * (1.0 - enter), out=by_enter)
        torch.mul(shift_states(cells, sizes), forget * (1.0 - forget), out=by_forget)
        torch.mul(enter, 1.0 - new * new, out=by_new)
        torch.mul(bounded, out * (1.0 - out), out=by_out)
        found = gradient.clone()
        steps = slope.view(*found.shape[:2], 4, width)
        later: tuple[Tensor, Tensor] | None = None
        for start, stop in reversed(list(pairwise(accumulate(sizes, initial=0)))):
            of_state, of_gates = found[:, start:stop], steps[:, start:stop]
            if later is not None:
                of_state[:, : later[0].shape[1]] += later[0]
            of_cell = of_state * to_cell[:, start:stop]
            if later is not None:
                of_cell[:, : later[1].shape[1]] += later[1]
            of_gates[:, :, :3].mul_(of_cell.unsqueeze(2))
            of_gates[:, :, 3].mul_(of_state)
            if start:
                later = of_gates.flatten(2) @ weight, of_cell * forget[:, start:stop]
        return slope, slope


@dataclass(frozen=True, eq=False)
class Steps:
    """The order of the rows of packed sequences by step.

    Args:
        sizes: Number of rows of each step.
        order: Index in the packed sequences of the row at each place of the order, for each direction.
        places: Inverse of `order`: the place of each row.
    """

    sizes: tuple[int, ...]
    order: Int[Tensor, "r n"]
    places: Int[Tensor, "r n"]

    @classmethod
    def from_sequences(cls, sequences: Int[Tensor, " n"], lengths: Int[Tensor, " s"], directions: int) -> Steps:
        """Orders sequences that stand one after another.

        Args:
            sequences: Index of each row's sequence.
            lengths: Number of rows of each sequence.
            directions: 1 for forward only, 2 for both.
        """
        ranks = torch.empty_like(lengths)
        ranks[lengths.argsort(descending=True, stable=True)] = torch.arange(len(lengths), device=lengths.device)
        ended = torch.bincount(lengths).cumsum(0)[:-1]  # number of sequences that have ended before each step
        sizes = len(lengths) - ended
        starts = sizes.cumsum(0) - sizes
        at = torch.arange(len(sequences), device=lengths.device) - (lengths.cumsum(0) - lengths)[sequences]
        steps = torch.stack([at, lengths[sequences] - 1 - at][:directions])
        places = starts[steps] + ranks[sequences]
        rows = torch.arange(len(sequences), device=lengths.device).expand_as(places)
        return cls(tuple(sizes.tolist()), torch.empty_like(places).scatter_(1, places, rows), places)


def recurrence(
    cell: type[Cell],
    x: Float[Tensor, "n d"],
    steps: Steps,
    to_gates: Float[Tensor, "r g d"],
    between: Float[Tensor, "r g e"],
    bias: Float[Tensor, "r g"],
    bias_between: Float[Tensor, "r g"],
) -> Float[Tensor, "n re"]:
    """Returns the hidden states of all rows, with the directions concatenated.

    Args:
        cell: `GRU` or `LSTM`.
        x: Rows of all sequences, one sequence after another.
        steps: Order of the rows.
        to_gates, bias: Weight and bias from the input to the gates of each direction.
        between, bias_between: Weight and bias from the previous hidden state to the gates of each direction.
    """
    states: Tensor = _Recurrence.apply(cell, x, steps, to_gates, between, bias, bias_between)
    return states


def shift_states(states: Float[Tensor, "r n d"], sizes: Sequence[int]) -> Float[Tensor, "r n d"]:
    """Returns the previous state of each row, which is zero at the first step."""
    found = torch.empty_like(states)
    found[:, : sizes[0]] = 0.0
    ends = list(accumulate(sizes, initial=0))
    for (before, start), stop in zip(pairwise(ends), ends[2:], strict=False):
        found[:, start:stop] = states[:, before : before + stop - start]
    return found


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, cell: type[Cell], x: Tensor, steps: Steps, to_gates: Tensor, between: Tensor, *biases: Tensor
    ) -> Tensor:
        gates = x.new_empty(len(to_gates), len(x), to_gates.shape[1])
        for of_direction, order, weight, bias in zip(gates, steps.order, to_gates, biases[0], strict=True):
            of_direction.copy_(F.linear(x.index_select(0, order), weight, bias))
        states, kept = cell.forward(gates, between.transpose(1, 2), biases[1].unsqueeze(1), steps.sizes)
        ctx.cell, ctx.steps = cell, steps
        ctx.save_for_backward(x, to_gates, between, states, *kept)
        return _side_by_side(states, steps.places)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x, to_gates, between, states, *kept = ctx.saved_tensors
        steps: Steps = ctx.steps
        parts = gradient.chunk(len(states), 1)
        by_step = torch.stack([part.index_select(0, order) for part, order in zip(parts, steps.order, strict=True)])
        before = shift_states(states, steps.sizes)
        of_hidden, of_input = ctx.cell.backward(by_step, between, before, tuple(kept), steps.sizes)
        to_x = None
        if ctx.needs_input_grad[1]:
            to_x = torch.zeros_like(x)
            for part, weight, places in zip(of_input, to_gates, steps.places, strict=True):
                to_x += (part @ weight).index_select(0, places)
        rows = (x.index_select(0, order) for order in steps.order)
        to_weight, between = (
            torch.stack([part.t() @ each for part, each in zip(parts, of, strict=True)])
            for parts, of in ((of_input, rows), (of_hidden, before))
        )
        return None, to_x, None, to_weight, between, of_input.sum(1), of_hidden.sum(1)


def _side_by_side(states: Tensor, places: Tensor) -> Tensor:
    return torch.cat([part.index_select(0, at) for part, at in zip(states, places, strict=True)], 1)
