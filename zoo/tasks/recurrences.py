"""GRU and LSTM over packed sequences, all of a step and both directions at once, with a backward pass of their own.

On CPUs PyTorch's goes through autograd at each step. Here a step of the backward pass is three operations: what its
gates contribute is computed for all rows beforehand, and the weights' gradients are one product over all rows after.

Rows are ordered by step: the first rows of all sequences, then the second ones ...; within a step by sequence, the
longest first. `sizes` are the numbers of rows of the steps. The leading axis r is of directions, each with an order of
its own.
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


class Cell(Protocol):
    """What `recurrence` asks: a pass over the steps, and its derivative."""

    gates: ClassVar[int]

    @staticmethod
    def forward(
        gates: Float[Tensor, "r n g"],
        weight: Float[Tensor, "r d g"],
        bias: Float[Tensor, "r 1 g"],
        sizes: Sequence[int],
    ) -> tuple[Float[Tensor, "r n d"], tuple[Tensor, ...]]:
        """The hidden states, and what the derivative needs; `gates`, the input's part of them, may be overwritten."""
        ...

    @staticmethod
    def backward(
        gradient: Float[Tensor, "r n d"],
        weight: Float[Tensor, "r g d"],
        before: Float[Tensor, "r n d"],
        kept: tuple[Tensor, ...],
        sizes: Sequence[int],
    ) -> tuple[Float[Tensor, "r n g"], Float[Tensor, "r n g"]]:
        """Gradients of the hidden states' part of the gates, and of the input's.

        Args:
            before: The hidden states before each row.
        """
        ...


class GRU:
    """r, z = σ(x W + h U), n = tanh(x W + r (h U + b)), h' = (1 - z) n + z h (Cho et al. 2014; as `nn.GRU`)."""

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

    The forget gate is Gers et al.'s (2000); as `nn.LSTM`.
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
        torch.mul(shifted(cells, sizes), forget * (1.0 - forget), out=by_forget)
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
    """The rows of packed sequences in the order of steps.

    Args:
        sizes: Rows of each step.
        order: For each direction, which row of the packed sequences stands at each place.
        places: The opposite: at which place each row stands.
    """

    sizes: tuple[int, ...]
    order: Int[Tensor, "r n"]
    places: Int[Tensor, "r n"]

    @classmethod
    def of(cls, sequences: Int[Tensor, " n"], lengths: Int[Tensor, " s"], directions: int) -> Steps:
        """Sequences that stand one after another.

        Args:
            sequences: The number of each row's.
            lengths: How many rows each has.
        """
        ranks = torch.empty_like(lengths)
        ranks[lengths.argsort(descending=True, stable=True)] = torch.arange(len(lengths), device=lengths.device)
        ended = torch.bincount(lengths).cumsum(0)[:-1]  # by each step
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
    """The hidden states of all rows, directions side by side.

    Args:
        to_gates, bias: From the input to the gates of each direction.
        between, bias_between: From the hidden state before.
    """
    states: Tensor = _Recurrence.apply(cell, x, steps, to_gates, between, bias, bias_between)
    return states


def shifted(states: Float[Tensor, "r n d"], sizes: Sequence[int]) -> Float[Tensor, "r n d"]:
    """What stood before each row; zeros before the first."""
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
            torch.addmm(bias, x.index_select(0, order), weight.t(), out=of_direction)
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
        before = shifted(states, steps.sizes)
        of_hidden, of_input = ctx.cell.backward(by_step, between, before, tuple(kept), steps.sizes)
        to_x = None
        if ctx.needs_input_grad[1]:
            to_x = torch.zeros_like(x)
            for part, weight, places in zip(of_input, to_gates, steps.places, strict=True):
                to_x += (part @ weight).index_select(0, places)
        of_weights = [part.mT @ x.index_select(0, order) for part, order in zip(of_input, steps.order, strict=True)]
        return None, to_x, None, torch.stack(of_weights), of_hidden.mT @ before, of_input.sum(1), of_hidden.sum(1)


def _side_by_side(states: Tensor, places: Tensor) -> Tensor:
    return torch.cat([part.index_select(0, at) for part, at in zip(states, places, strict=True)], 1)
