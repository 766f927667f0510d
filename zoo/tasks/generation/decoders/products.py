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

from zoo.attention import CrossAttention
from zoo.attention.functional import PrepackedLinear, linear

Product = Callable[[int, Float[Tensor, "b d"]], Float[Tensor, "b g"]]
"""Computes the product of a step; steps are computed in their order."""


class Weights:
    """The weights of a decoding, each prepared once for all its steps."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, torch.Size], PrepackedLinear] = {}

    def of(self, weight: Float[Tensor, "g d"]) -> PrepackedLinear:
        """Returns a weight, or a part of one, that stays as it is while this object exists."""
        key = weight.data_ptr(), weight.shape
        if key not in self._found:
            self._found[key] = PrepackedLinear(weight)
        return self._found[key]


class Products:
    """base_t + x_t W^T for t = 0, 1 ...

    Args:
        base: What is added at each step.
        weight: W.
        weights: The weights of the decoding that these steps are a part of.
    """

    def __init__(self, base: Float[Tensor, "n b g"], weight: Float[Tensor, "g d"], weights: Weights) -> None:
        self.inputs: list[Tensor] = []
        self.weight = weights.of(weight)
        self.turned: PrepackedLinear | None = None
        if torch.is_grad_enabled() and weight.requires_grad:
            self.turned = PrepackedLinear(self.weight.weight.t().contiguous())
            base = _Later.apply(base, weight, self.inputs)
        self.base = base.unbind(0)

    def at(self, step: int, x: Float[Tensor, "b d"]) -> Float[Tensor, "b g"]:
        """Computes the product of a step; steps are computed in their order."""
        if self.turned is None:
            return self.weight.addmm(self.base[step], x)
        self.inputs.append(x.detach())
        return _Step.apply(self.base[step], x, self.weight, self.turned)  # type: ignore[no-any-return]


def repeated(
    bias: Float[Tensor, " g"] | None, weight: Float[Tensor, "g d"], weights: Weights, steps: int, rows: int
) -> Product:
    """Returns the function that computes x_t W^T + b, or without a bias x_t W^T.

    Args:
        bias: b.
        weight: W.
        weights: The weights of the decoding that these steps are a part of.
        steps: Number of steps.
        rows: Number of rows of a step.
    """
    if not torch.is_grad_enabled():
        prepared = weights.of(weight)
        return lambda step, x: prepared.product(x, bias)
    base = weight.new_zeros(len(weight)) if bias is None else bias
    return Products(base.expand(steps, rows, -1), weight, weights).at


def of_words(
    words: Float[Tensor, "n b e"], weight: Float[Tensor, "g e"], bias: Float[Tensor, " g"], weights: Weights
) -> Float[Tensor, "n b g"]:
    """Computes W x + b of the words of all steps."""
    if torch.is_grad_enabled():
        return linear(words, weight, bias)
    found = weights.of(weight).product(words.flatten(0, 1), bias)
    return found.view(*words.shape[:2], found.shape[-1])


def asking(attention: CrossAttention, steps: int, rows: int, weights: Weights) -> Product:
    """Returns the function that makes the queries of a step of a state."""
    weight = getattr(attention.query, "weight", None)
    if weight is None:
        return lambda step, state: attention.query(state)
    return repeated(None, weight, weights, steps, rows)


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
        return gradient, linear(steps.t().contiguous(), torch.cat(ctx.inputs).t().contiguous()), None


class _Step(torch.autograd.Function):
    """base + x W^T, whose weight `_Later` gives its gradient."""

    @staticmethod
    def forward(ctx: Any, base: Tensor, x: Tensor, weight: PrepackedLinear, turned: PrepackedLinear) -> Tensor:
        ctx.turned = turned
        return weight.addmm(base, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        return gradient, ctx.turned.product(gradient), None, None
