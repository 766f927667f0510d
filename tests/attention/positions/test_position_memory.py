"""Positions on sparse patterns: those of a dense map under the same mask, in memory that grows with the pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from memory_cases import growth
from torch import Tensor, nn

from zoo.attention import (
    ALiBi,
    Attention,
    BigBird,
    DenseSupport,
    Gaussian,
    LocalP,
    Position,
    RelativeBias2D,
    ScaledDot,
    Shaw,
    ShiftedWindows,
    SlidingWindow,
    Softmax,
    T5Bias,
    TransformerXL,
)

POSITIONS: dict[str, Callable[[int], Position]] = {
    "ALiBi": lambda side: ALiBi(heads=2),
    "T5": lambda side: T5Bias(heads=2),
    "Shaw": lambda side: Shaw(dim=8, distance=4),
    "Transformer-XL": lambda side: TransformerXL(dim=8, heads=2),
    "grid": lambda side: RelativeBias2D(heads=2, grid=(side, side)),
}
PATTERNS: dict[str, Callable[[], nn.Module]] = {
    "window": lambda: SlidingWindow(radius=8),
    "global tokens": lambda: SlidingWindow(radius=8, global_tokens=2),
    "dilated, global tokens": lambda: SlidingWindow(radius=4, dilation=3, global_tokens=1),
    "BigBird": lambda: BigBird(block=8, random_blocks=1),
    "shifted windows": lambda: ShiftedWindows(window=4, shift=2),
    "predicted place": lambda: LocalP(dim=8, heads=2, radius=4),
}
every_position = pytest.mark.parametrize("position", POSITIONS)
every_pattern = pytest.mark.parametrize("pattern", PATTERNS)


def placed(position: str, pattern: str | None, side: int) -> Attention:
    torch.manual_seed(0)
    restrict = None if pattern is None else PATTERNS[pattern]()
    attend = Attention(ScaledDot(), Gaussian() if isinstance(restrict, LocalP) else Softmax(), restrict=restrict)
    made = POSITIONS[position](side)
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    attend.set_position(made)
    return attend


@every_position
@every_pattern
def test_memory_is_linear_in_length(position: str, pattern: str) -> None:
    def of(length: int) -> Callable[[], Any]:
        attend = placed(position, pattern, int(length**0.5))
        x = torch.randn(1, 2, length, 8, requires_grad=True)
        support = DenseSupport()
        return lambda: attend(x, x, x, support)[0]

    assert growth(of, 576, 2304) < 1.15


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", ["global tokens", "dilated, global tokens", "BigBird", "shifted windows"])
@pytest.mark.parametrize("position", ["Transformer-XL", "grid"])
def test_biases_are_those_of_a_dense_map(position: str, pattern: str, causal: bool) -> None:
    """Also where distances are many, and in gradients."""
    length = 576
    sparse = placed(position, pattern, 24).double()
    query, key = (torch.randn(2, 2, length, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    support = sparse.restrict(query, key, DenseSupport(causal=causal))
    found = sparse.position.bias(query, key, support, 0.5)
    pairs = found.expand(-1, -1, -1) if found.shape[0] == 2 else found.expand(2, -1, -1)
    every = sparse.position.bias(query, key, DenseSupport(), 0.5).expand(2, -1, -1, -1)
    exists = support.to_dense(torch.ones_like(pairs), length, length) > 0
    weighing = torch.randn(every.shape, dtype=torch.float64) * exists
    dense = support.to_dense(pairs, length, length)
    torch.testing.assert_close(dense, every.where(exists, 0.0), rtol=0.0, atol=1e-10)
    of_what = [query, *sparse.position.parameters()]
    one, other = (torch.autograd.grad((each * weighing).sum(), of_what, allow_unused=True) for each in (dense, every))
    for gradient, expected in zip(one, other, strict=True):
        assert (gradient is None) == (expected is None)
        if gradient is not None:
            torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_many_distances_in_other_precisions(dtype: torch.dtype) -> None:
    layer = placed("Transformer-XL", "BigBird", 24)
    x = torch.randn(1, 2, 576, 8).to(dtype)
    expected = layer.double()(x.double(), x.double(), x.double(), DenseSupport())[0]
    found: Tensor = layer.to(dtype)(x, x, x, DenseSupport())[0]
    assert found.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 8e-2
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
