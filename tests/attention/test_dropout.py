"""Dropout: how much it keeps, by how much it scales, and that the backward pass drops what the forward pass did."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from zoo.attention import Attend, Constant, DenseSupport, EdgeSupport, ScaledDot, Softmax, dropout

COUNT = 200_000


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_keeps_and_scales_as_it_says(p: float, dtype: torch.dtype) -> None:
    """Within five standard deviations of 200,000 draws; the scale is that of a rate rounded to 1/65536."""
    torch.manual_seed(0)
    x = torch.full((COUNT,), 3.0, dtype=dtype)
    y = dropout(x, p, True)
    kept = y != 0
    deviation = math.sqrt(p * (1 - p) / COUNT)
    assert abs(kept.double().mean().item() - (1 - p)) < 5 * deviation
    rate = round((1 - p) * 65536) / 65536
    torch.testing.assert_close(y[kept], (x / rate)[kept], rtol=1e-6, atol=0.0)
    assert abs(rate - (1 - p)) <= 1 / 131072
    assert abs(y.double().mean().item() - 3.0) < 3.0 * 5 * deviation / (1 - p)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    y = dropout(torch.ones(1000, dtype=dtype), 0.5, True)
    assert y.dtype == dtype
    assert set(y.tolist()) == {0.0, 2.0}


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False), (0.0, False)])
def test_is_the_identity_in_evaluation_and_at_zero(p: float, training: bool) -> None:
    x = torch.randn(7)
    assert dropout(x, p, training) is x


def test_nearly_everything_dropped() -> None:
    """A keep rate that rounds to nothing keeps nothing, rather than dividing by zero."""
    assert not dropout(torch.ones(1000), 1 - 1e-6, True).any()


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (5,), (7, 3), (2, 3, 5), (0,), (4, 0, 2)])
def test_any_size(shape: tuple[int, ...]) -> None:
    """Random bits are drawn four elements at a time."""
    torch.manual_seed(0)
    y = dropout(torch.ones(shape), 0.5, True)
    assert y.shape == shape
    assert set(y.flatten().tolist()) <= {0.0, 2.0}


def test_every_element_is_drawn_for_itself() -> None:
    """Neighbours, which share a 64-bit word, agree half of the time, and so do two calls."""
    torch.manual_seed(0)
    first, second = dropout(torch.ones(40_001), 0.5, True), dropout(torch.ones(40_001), 0.5, True)
    for distance in (1, 2, 3, 4):
        agree = (first[distance:] == first[:-distance]).double().mean().item()
        assert abs(agree - 0.5) < 5 * 0.5 / 200
    assert abs((first == second).double().mean().item() - 0.5) < 5 * 0.5 / 200


def test_the_same_seed_drops_the_same() -> None:
    x = torch.randn(50, 3)
    torch.manual_seed(7)
    first = dropout(x, 0.4, True)
    torch.manual_seed(7)
    assert torch.equal(dropout(x, 0.4, True), first)
    assert not torch.equal(dropout(x, 0.4, True), first)


def test_does_not_touch_its_input() -> None:
    x = torch.ones(10)
    dropout(x, 0.5, True)
    assert x.all()


def test_the_backward_pass_drops_the_same() -> None:
    x = torch.randn(101, dtype=torch.float64, requires_grad=True)
    y = dropout(x, 0.3, True)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y / x).detach())
    assert 0 < (x.grad == 0).sum() < 101


@pytest.mark.parametrize("layout", ["dense", "masked", "edges"])
@pytest.mark.parametrize("score", [Constant(), ScaledDot()])
def test_attend_drops_weights_in_training_only(layout: str, score: nn.Module) -> None:
    """On every path. The context is a mean of ones, and so counts the weights that are left."""
    attend = Attend(score, Softmax(), dropout=0.25)
    x = torch.ones(64, 1, 1) if layout == "edges" else torch.ones(1, 1, 64, 1)
    support = {
        "dense": DenseSupport(),
        "masked": DenseSupport.from_key_mask(torch.ones(1, 64, dtype=torch.bool)),
        "edges": EdgeSupport.from_edges(torch.cartesian_prod(torch.arange(64), torch.arange(64)).T, 64),
    }[layout]
    torch.manual_seed(0)
    context = attend(x, x, x, support)[0].flatten()
    kept = context * 64 * 0.75
    torch.testing.assert_close(kept, kept.round(), rtol=0.0, atol=1e-3)
    assert context.std() > 0.01
    assert abs(context.mean().item() - 1.0) < 5 * math.sqrt(0.25 / 0.75 / 64 / 64)
    torch.testing.assert_close(attend.eval()(x, x, x, support)[0], x)
