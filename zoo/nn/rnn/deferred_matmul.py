"""Products with one weight at every step of a loop, whose gradient of the weight is one product over all steps.

PyTorch's backward pass would multiply and add a whole weight at each step. Here a step's product has a constant weight
and adds to a row of `base`; the gradient of `base` holds those of all steps, and gives the weight's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from zoo.attention import CrossAttention

Product = Callable[[int, Float[Tensor, "b d"]], Float[Tensor, "b g"]]
"""Computes the product of a step; steps are computed in their order."""


class DeferredLinear:
    """base_t + x_t W^T for t = 0, 1 ...

    Args:
        base: What is added at each step.
        weight: W.
    """

    def __init__(self, base: Float[Tensor, "n b g"], weight: Float[Tensor, "g d"]) -> None:
        self.inputs: list[Tensor] = []
        self.weight = weight.detach()
        self.is_trained = torch.is_grad_enabled() and weight.requires_grad
        if self.is_trained:
            base = _Later.apply(base, weight, self.inputs)
        self.base = base.unbind(0)

    def step(self, step: int, x: Float[Tensor, "b d"]) -> Float[Tensor, "b g"]:
        """Computes the product of a step; steps are computed in their order."""
        if not self.is_trained:
            return torch.addmm(self.base[step], x, self.weight.t())
        self.inputs.append(x.detach())
        return _Step.apply(self.base[step], x, self.weight)  # type: ignore[no-any-return]


def repeat_linear(bias: Float[Tensor, " g"] | None, weight: Float[Tensor, "g d"], steps: int, rows: int) -> Product:
    """Returns the function that computes x_t W^T + b, or without a bias x_t W^T.

    Args:
        bias: b.
        weight: W.
        steps: Number of steps.
        rows: Number of rows of a step.
    """
    if not torch.is_grad_enabled():
        return lambda step, x: F.linear(x, weight, bias)
    base = weight.new_zeros(len(weight)) if bias is None else bias
    return DeferredLinear(base.expand(steps, rows, -1), weight).step


def project_query(attention: CrossAttention, steps: int, rows: int) -> Product:
    """Returns the function that makes the queries of a step of a state."""
    weight = getattr(attention.query, "weight", None)
    if weight is None:
        return lambda step, state: attention.query(state)
    return repeat_linear(None, weight, steps, rows)


class _Later(torch.autograd.Function):
    """Returns `base`, and gives the gradient of the weight when those of all steps are known."""

    @staticmethod
    def forward(ctx: Any, base: Tensor, weight: Tensor, inputs: list[Tensor]) -> Tensor:
        ctx.inputs = inputs
        return base.view_as(base)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        steps = gradient[: len(ctx.inputs)].flatten(0, 1)
        return gradient, steps.t() @ torch.cat(ctx.inputs), None


class _Step(torch.autograd.Function):
    """base + x W^T, whose weight `_Later` gives its gradient."""

    @staticmethod
    def forward(ctx: Any, base: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        ctx.weight = weight
        return torch.addmm(base, x, weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        return gradient, gradient @ ctx.weight, None
