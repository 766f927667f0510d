"""Tensors that depend on sizes are made once, and serve other modules, training and eager code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from zoo.attention import (
    ALiBi,
    Attention,
    AttentionFactory,
    BigBird,
    DenseSupport,
    MultiheadAttention,
    ScaledDot,
    ShiftedWindows,
    SlidingWindow,
    Softmax,
)
from zoo.attention.kernels.cache import cache_recent
from zoo.nn.images.windows import Windows

PATTERNS: dict[str, Callable[[], nn.Module]] = {
    "window": lambda: SlidingWindow(radius=2, global_tokens=1),
    "dilated": lambda: SlidingWindow(radius=2, dilation=2),
    "bigbird": lambda: BigBird(block=2, global_blocks=1, random_blocks=1),
    "shifted": lambda: ShiftedWindows(window=2, shift=1),
}
LENGTHS = iter(range(5, 100))
"""Sides of a square; each test takes one that no other test has used."""


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, next(LENGTHS) ** 2, 8)


def layer(kind: str) -> MultiheadAttention:
    torch.manual_seed(0)
    return MultiheadAttention(
        dim=8, heads=2, attend=AttentionFactory(ScaledDot, Softmax, restrict=PATTERNS[kind]), position=ALiBi
    )


def trains(module: MultiheadAttention, x: Tensor) -> None:
    context = module(x)[0]
    assert type(context) is Tensor
    context.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("kind", list(PATTERNS))
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, FakeTensorMode])
def test_a_length_first_seen_elsewhere(kind: str, mode: type[AbstractContextManager[object]], x: Tensor) -> None:
    if mode is FakeTensorMode:
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert layer(kind)(torch.randn(x.shape))[0].shape == x.shape
    else:
        with mode():
            layer(kind)(x)
    trains(layer(kind), x)


def test_a_length_first_seen_by_an_export(x: Tensor) -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layer(kind) for kind in PATTERNS)

        def forward(self, x: Tensor) -> list[Tensor]:
            return [layer(x)[0] for layer in self.layers]

    exported = torch.export.export(Several(), (x,), strict=False).module()
    for kind, found in zip(PATTERNS, exported(x), strict=True):
        other = layer(kind)
        trains(other, x)
        torch.testing.assert_close(found, other(x)[0])


@pytest.mark.parametrize("mode", [torch.inference_mode, FakeTensorMode])
def test_a_shared_support(mode: type[AbstractContextManager[object]]) -> None:
    """The same holds for the cached masks of a support."""
    support = DenseSupport(causal=True)
    module = MultiheadAttention(
        dim=8, heads=2, attend=lambda dim, heads: Attention(ScaledDot(), Softmax()), position=ALiBi
    )
    x = torch.randn(2, 5, 8)
    with mode():
        support.mask(5, 5, torch.device("cpu"))
        support.sees(5, 3, torch.device("cpu"))
    assert type(support.mask(5, 5, torch.device("cpu"))) is Tensor
    assert not support.sees(5, 3, torch.device("cpu")).is_inference()
    module(x, None, support)[0].sum().backward()


@pytest.mark.parametrize("mode", [torch.inference_mode, FakeTensorMode])
def test_swins_windows(mode: type[AbstractContextManager[object]]) -> None:
    windows = Windows(rows=next(LENGTHS), columns=5, window=2, down=1, right=1)
    with mode():
        windows.support(3, torch.device("cpu"))
    support = windows.support(3, torch.device("cpu"))
    assert support is windows.support(3, torch.device("cpu"))
    assert type(support.permitted) is Tensor
    assert not support.permitted.is_inference()


def test_the_last_are_kept() -> None:
    made = []

    @cache_recent(2)
    def squares(n: int) -> Tensor:
        made.append(n)
        return torch.arange(n) ** 2

    for n in (3, 4, 3, 5, 4):
        squares(n)
    assert made == [3, 4, 5, 4]
