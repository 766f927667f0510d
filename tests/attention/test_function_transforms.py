"""Every mechanism in `torch.func`: gradients and vectorised calls, or a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_mechanism_laws import LAYERS, NOT_CAUSAL
from torch import Tensor
from torch.func import functional_call, grad, vmap

from zoo.attention import DenseSupport, MultiheadAttention

REFUSED = ("monotonic",)
EXACT = {"rtol": 1e-9, "atol": 1e-10}


def call_of(name: str, causal: bool) -> tuple[MultiheadAttention, Callable[[dict[str, Any], Tensor], Tensor]]:
    """A layer, and a number that it computes from its parameters and a batch."""
    torch.default_generator.manual_seed(3)
    layer = LAYERS[name](dim=8, heads=2).double().eval()

    def call(parameters: dict[str, Any], x: Tensor) -> Tensor:
        found = functional_call(layer, parameters, (x, None, DenseSupport(causal=causal)))[0]
        return (found + 0.5 * found.square()).sum()

    return layer, call


@pytest.mark.filterwarnings(
    "ignore:There is a performance drop"
)  # PyTorch calls its fused kernel for each of the batch
@pytest.mark.parametrize("name", LAYERS)
def test_transforms(name: str) -> None:
    """The gradient of each of several batches at once."""
    for causal in (False, True)[: 1 if name in NOT_CAUSAL else 2]:
        layer, call = call_of(name, causal)
        parameters = dict(layer.named_parameters())
        batches = torch.randn(2, 2, 9, 8, dtype=torch.float64)
        if name in REFUSED:
            with pytest.raises(NotImplementedError, match=r"torch\.func and torch\.export cannot take"):
                grad(call)(parameters, batches[0])
            return
        found = vmap(grad(call), (None, 0))(parameters, batches)
        for number, x in enumerate(batches):
            leaf = x.clone().requires_grad_()
            expected = torch.autograd.grad(call(parameters, leaf), [*parameters.values(), leaf], allow_unused=True)
            for key, gradient in zip(parameters, expected, strict=False):
                wanted = torch.zeros_like(parameters[key]) if gradient is None else gradient
                torch.testing.assert_close(found[key][number], wanted, **EXACT)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_long_rows_keep_to_kernels_that_can_be_transformed(dropout: float) -> None:
    """Kernels of our own, which are faster, are for eager calls."""
    torch.default_generator.manual_seed(3)
    layer = LAYERS["softmax"](dim=8, heads=2).train()
    layer.attend.dropout.p = dropout
    x = torch.randn(1, 130, 8)

    def call(parameters: dict[str, Any]) -> Tensor:
        return functional_call(layer, parameters, (x, None, DenseSupport(causal=True)))[0].square().sum()

    found = grad(call)(dict(layer.named_parameters()))
    assert all(each.isfinite().all() for each in found.values())
