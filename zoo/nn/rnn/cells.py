"""One step of a GRU or an LSTM, from the parts of its gates that its input and its state have given."""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from zoo.types import PositiveInt, validate_ranges

Kind = Literal["gru", "lstm"]
_GATES = {"gru": 3, "lstm": 4}


@validate_ranges
class RNNCellWeights(nn.Module):
    """The parameters of one recurrent layer; those of `nn.GRUCell` or `nn.LSTMCell`.

    Products with weights are the caller's, who knows which of them need a loop; `forward` computes the gates.

    Args:
        input_dim: Width of the input.
        dim: Width of the state.
        kind: "gru" or "lstm".
    """

    def __init__(self, *, input_dim: PositiveInt, dim: PositiveInt, kind: Kind) -> None:
        super().__init__()
        if kind not in _GATES:
            raise ValueError(f"kind is 'gru' or 'lstm', got {kind!r}")
        self.kind = kind
        gates = _GATES[kind] * dim
        self.weight_ih = nn.Parameter(torch.empty(gates, input_dim))
        self.weight_hh = nn.Parameter(torch.empty(gates, dim))
        self.bias_ih = nn.Parameter(torch.empty(gates))
        self.bias_hh = nn.Parameter(torch.empty(gates))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises as `nn.GRUCell` does."""
        bound = self.weight_hh.shape[1] ** -0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, of_input: Float[Tensor, "n g"], of_state: Float[Tensor, "n g"], states: tuple[Float[Tensor, "n d"], ...]
    ) -> tuple[Float[Tensor, "n d"], ...]:
        """Returns the next states.

        Args:
            of_input: W x + b of all gates.
            of_state: U h + b of all gates.
            states: h; of an LSTM h and the cell.
        """
        return rnn_step(self.kind, of_input, of_state, states)


def rnn_step(
    kind: Kind, of_input: Float[Tensor, "n g"], of_state: Float[Tensor, "n g"], states: tuple[Float[Tensor, "n d"], ...]
) -> tuple[Float[Tensor, "n d"], ...]:
    """Returns the next states: see `RNNCellWeights.forward`."""
    if kind == "gru":
        return (_GRU.apply(of_input, of_state, states[0]),)
    return _LSTM.apply(of_input, of_state, states[1])  # type: ignore[no-any-return]


class _GRU(torch.autograd.Function):
    """r, z = σ(i + s), n = tanh(i + r s), h' = (1 - z) n + z h, with i and s the parts of input and state."""

    @staticmethod
    def forward(ctx: Any, of_input: Tensor, of_state: Tensor, state: Tensor) -> Tensor:
        width = state.shape[-1]
        both = (of_input[..., : 2 * width] + of_state[..., : 2 * width]).sigmoid_()
        reset, update = both.chunk(2, -1)
        candidate = of_state[..., 2 * width :]
        new = torch.addcmul(of_input[..., 2 * width :], reset, candidate).tanh_()
        ctx.save_for_backward(both, candidate, new, state)
        return torch.lerp(new, state, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        both, candidate, new, state = ctx.saved_tensors
        width = state.shape[-1]
        reset, update = both.chunk(2, -1)
        of_input = gradient.new_empty(*gradient.shape[:-1], 3 * width)
        of_state = torch.empty_like(of_input)
        to_state = gradient * update
        # n: (1 - z)(1 - n^2); gradient - to_state is gradient (1 - z)
        to_new = torch.mul(gradient - to_state, 1.0 - new * new, out=of_input[..., 2 * width :])
        torch.mul(to_new, reset, out=of_state[..., 2 * width :])
        slope = both * (1.0 - both)
        gates = of_input[..., : 2 * width]
        torch.mul(to_new, candidate, out=gates[..., :width])
        torch.mul(gradient, state - new, out=gates[..., width:])
        gates.mul_(slope)
        of_state[..., : 2 * width] = gates
        return of_input, of_state, to_state


class _LSTM(torch.autograd.Function):
    """i, f, o = σ(...), g = tanh(...) of the sums of both parts, c' = f c + i g, h' = o tanh(c')."""

    @staticmethod
    def forward(ctx: Any, of_input: Tensor, of_state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        width = cell.shape[-1]
        gates = of_input + of_state
        gates[..., : 2 * width].sigmoid_()
        gates[..., 2 * width : 3 * width].tanh_()
        gates[..., 3 * width :].sigmoid_()
        enter, forget, new, out = gates.chunk(4, -1)
        after = (forget * cell).addcmul_(enter, new)
        bounded = after.tanh()
        ctx.save_for_backward(gates, cell, bounded)
        return out * bounded, after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_hidden: Tensor, of_cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gates, cell, bounded = ctx.saved_tensors
        enter, forget, new, out = gates.chunk(4, -1)
        of_cell = torch.addcmul(of_cell, of_hidden * out, 1.0 - bounded * bounded)
        found = torch.empty_like(gates)
        by_enter, by_forget, by_new, by_out = found.chunk(4, -1)
        torch.mul(of_cell * new, enter * (1.0 - enter), out=by_enter)
        torch.mul(of_cell * cell, forget * (1.0 - forget), out=by_forget)
        torch.mul(of_cell * enter, 1.0 - new * new, out=by_new)
        torch.mul(of_hidden * bounded, out * (1.0 - out), out=by_out)
        return found, found, of_cell * forget
