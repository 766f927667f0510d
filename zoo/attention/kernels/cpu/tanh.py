"""The hyperbolic tangent, which additive scores spend most of their time on."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention.cpu import PROCESSOR, Processor, is_enabled, is_transformed

_MANY = 2**14
_MINUS_ONE = torch.tensor(-1.0)


def tanh(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Computes tanh x; if `use_sigmoid` is true, as 2 sigmoid(2x) - 1, which differs by 2e-7 at most.

    PyTorch computes tanh with MKL, and sigmoid with its own vectors.
    """
    if not use_sigmoid(x, PROCESSOR):
        return torch.tanh(x)
    if torch.is_grad_enabled() and x.requires_grad:
        return _Tanh.apply(x)  # type: ignore[no-any-return]
    return _tanh_by_sigmoid(x)


def tanh_(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Computes `tanh` in the place of x, a sum that nothing else reads: its derivative needs the result alone."""
    if not use_sigmoid(x, PROCESSOR):
        return x.tanh_()
    if torch.is_grad_enabled() and x.requires_grad:
        return _Tanh.apply(x)  # type: ignore[no-any-return]
    x.add_(x).sigmoid_()
    return torch.add(_MINUS_ONE, x, alpha=2.0, out=x)  # one pass over x, with the result of two


def use_sigmoid(x: Float[Tensor, "..."], processor: Processor) -> bool:
    """Returns True if the sigmoid is faster: a quarter of the time for many numbers, where MKL is slow.

    This depends only on shape, dtype, device and processor.
    """
    if not processor.has_slow_mkl or is_transformed() or not is_enabled("tanh"):
        return False
    return x.device.type == "cpu" and x.dtype == torch.float32 and x.numel() >= _MANY


def _tanh_by_sigmoid(x: Tensor) -> Tensor:
    return (x + x).sigmoid_().mul_(2.0).sub_(1.0)


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = _tanh_by_sigmoid(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(gradient, y)  # type: ignore[no-any-return]
