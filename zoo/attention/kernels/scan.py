"""The linear recurrence, all steps at once: of monotonic attention and of state-space mixers."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Inexact
from torch import Tensor
from torch.nn import functional as F

# From so many sequences on one step costs a CPU more than calling it does.
_MANY = 1024


def linear_recurrence(
    decay: Inexact[Tensor, "..."], x: Inexact[Tensor, "..."], *, dim: int = -1, reverse: bool = False
) -> Inexact[Tensor, "..."]:
    """y_j = a_j y_{j-1} + x_j along an axis, with y before the first step zero; `reverse` runs from the last step.

    A doubling scan (Hillis & Steele 1986): log2(n) rounds of products and sums, no division and no logarithm, so that
    decays of zero and one are exact. CPUs run over time instead where there are many sequences. The gradient is the
    recurrence run the other way; two tensors are kept for it, whatever the number of rounds.

    Args:
        decay: a, of magnitude at most one: products of larger ones may overflow. Broadcasts with `x` on all axes but
            `dim`, as `x` does.
        x: What is added at each step; a state from before is `a_0 y_{-1}` more at the first.
    """
    axes = max(decay.dim(), x.dim())
    if not -axes <= dim < axes:
        raise ValueError(f"there is no axis {dim} in a tensor with {axes} axes")
    along = dim % axes - axes
    lengths = [each.shape[along] if each.dim() >= -along else 1 for each in (decay, x)]
    if lengths[0] != lengths[1]:
        raise ValueError(f"decay and x must be equally long, got {lengths[0]} and {lengths[1]} steps on axis {dim}")
    dtype = torch.promote_types(decay.dtype, x.dtype)
    decay, x = torch.broadcast_tensors(decay.to(dtype), x.to(dtype))  # type: ignore[no-untyped-call]
    y = _Recurrence.apply(decay.movedim(along, 0), x.movedim(along, 0), reverse)
    return y.movedim(0, along)  # type: ignore[no-any-return]


class _Recurrence(torch.autograd.Function):
    """Along the first axis. With g the gradient of all of y: g_j = dL/dy_j + a_{j+1} g_{j+1}."""

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
        to_x = _Recurrence.apply(_shifted(decay, back).conj(), gradient, not ctx.reverse)
        return to_x * _shifted(y, on).conj(), to_x, None


def _shifted(x: Tensor, by: int) -> Tensor:
    """Along the first axis, later or earlier by one; zero where nothing comes from."""
    if len(x) == 0:
        return x
    kept, pad = (x[:-1], (1, 0)) if by > 0 else (x[1:], (0, 1))
    return F.pad(kept, (*(0, 0) * (x.dim() - 1), *pad))


def _scan(decay: Tensor, x: Tensor) -> Tensor:
    in_cpu = x.device.type == "cpu" and not torch.compiler.is_compiling()
    return _in_order(decay, x) if in_cpu and x.numel() >= _MANY * len(x) else _doubling(decay, x)


def _doubling(decay: Tensor, x: Tensor) -> Tensor:
    """After a round every step has the sum over twice as many of those before it."""
    length, reach = len(x), 1
    while reach < length:
        x = torch.cat([x[:reach], torch.addcmul(x[reach:], decay[reach:], x[:-reach])])
        if 2 * reach < length:
            decay = torch.cat([decay[:reach], decay[reach:] * decay[:-reach]])
        reach *= 2
    return x.clone() if length <= 1 else x


def _in_order(decay: Tensor, x: Tensor) -> Tensor:
    y = x.clone(memory_format=torch.contiguous_format)
    steps = y.unbind(0)
    for j, factor in enumerate(decay.contiguous().unbind(0)[1:], start=1):
        steps[j].addcmul_(factor, steps[j - 1])
    return y
