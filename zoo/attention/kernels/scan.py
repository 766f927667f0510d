"""The linear recurrence of monotonic attention and state-space mixers, computed as a parallel scan."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Inexact
from torch import Tensor
from torch.nn import functional as F

# From this many sequences on, a CPU spends more time on the arithmetic of a step than on calling it.
_MANY = 1024


def linear_recurrence(
    decay: Inexact[Tensor, "..."], x: Inexact[Tensor, "..."], *, dim: int = -1, reverse: bool = False
) -> Inexact[Tensor, "..."]:
    """Computes y_j = a_j y_{j-1} + x_j along an axis, starting from zero.

    The scan takes log2(n) rounds of products and sums (Hillis & Steele 1986), without division or logarithm, so decays
    of zero and one are exact. CPUs loop over the steps instead if there are many sequences. The gradient is the
    recurrence in the other direction and keeps two tensors, whatever the number of rounds.

    Args:
        decay: a, of magnitude at most one: products of larger numbers may overflow.
        x: Input of each step; to continue from an earlier state, add `a_0 y_{-1}` to the first. `decay` and `x` are
            broadcast on all axes but `dim`.
        dim: Axis of the steps.
        reverse: If True, runs from the last step to the first.
    """
    axes = max(decay.dim(), x.dim())
    if not -axes <= dim < axes:
        raise ValueError(f"there is no axis {dim} in a tensor with {axes} axes")
    along = dim % axes - axes
    lengths = [tensor.shape[along] if tensor.dim() >= -along else 1 for tensor in (decay, x)]
    if lengths[0] != lengths[1]:
        raise ValueError(f"decay and x must be equally long, got {lengths[0]} and {lengths[1]} steps on axis {dim}")
    dtype = torch.promote_types(decay.dtype, x.dtype)
    decay, x = torch.broadcast_tensors(decay.to(dtype), x.to(dtype))  # type: ignore[no-untyped-call]
    y = _Recurrence.apply(decay.movedim(along, 0), x.movedim(along, 0), reverse)
    return y.movedim(0, along)  # type: ignore[no-any-return]


class _Recurrence(torch.autograd.Function):
    """The recurrence along the first axis; its gradient with respect to x is g_j = dL/dy_j + a_{j+1} g_{j+1}."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, x: Tensor, reverse: bool) -> Tensor:
        y = _scan(decay.flip(0), x.flip(0)).flip(0) if reverse else _scan(decay, x)
        ctx.save_for_backward(decay, y)
        ctx.reverse = reverse
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        decay, y = ctx.saved_tensors
        back, on = (1, -1) if ctx.reverse else (-1, 1)
        to_x = _Recurrence.apply(_shift(decay, back).conj(), gradient, not ctx.reverse)
        return to_x * _shift(y, on).conj(), to_x, None


def _shift(x: Tensor, by: int) -> Tensor:
    """Shifts x by one step along the first axis, later or earlier, and fills with zero."""
    if len(x) == 0:
        return x
    rows, pad = (x[:-1], (1, 0)) if by > 0 else (x[1:], (0, 1))
    return F.pad(rows, (*(0, 0) * (x.dim() - 1), *pad))


def _scan(decay: Tensor, x: Tensor) -> Tensor:
    in_cpu = x.device.type == "cpu" and not torch.compiler.is_compiling()
    return _scan_by_steps(decay, x) if in_cpu and x.numel() >= _MANY * len(x) else _scan_by_doubling(decay, x)


def _scan_by_doubling(decay: Tensor, x: Tensor) -> Tensor:
    """Computes the scan; after each round every step holds the sum over twice as many earlier steps."""
    length, reach = len(x), 1
    while reach < length:
        x = torch.cat([x[:reach], torch.addcmul(x[reach:], decay[reach:], x[:-reach])])
        if 2 * reach < length:
            decay = torch.cat([decay[:reach], decay[reach:] * decay[:-reach]])
        reach *= 2
    return x.clone() if length <= 1 else x


def _scan_by_steps(decay: Tensor, x: Tensor) -> Tensor:
    y = x.clone(memory_format=torch.contiguous_format)
    steps = y.unbind(0)
    for j, factor in enumerate(decay.contiguous().unbind(0)[1:], start=1):
        steps[j].addcmul_(factor, steps[j - 1])
    return y
