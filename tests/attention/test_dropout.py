"""Dropout: how much it keeps, by how much it scales, and that the backward pass drops what the forward pass did."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from torch import nn

from zoo.attention import (
    Attention,
    AttentionFactory,
    Constant,
    DenseSupport,
    DropWeights,
    EdgeSupport,
    KeyDropout,
    Monotonic,
    RenormalizedDropout,
    ScaledDot,
    Softmax,
)
from zoo.attention.dropout import Dropout, dropout, renormalize

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
    attend = Attention(score, Softmax(), dropout=0.25)
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


FIRST_ROW = torch.tensor([[0.8, 0.1, 0.0, 0.0, 0.1, 0.0]], dtype=torch.float64)
ALL_BUT_THE_FIRST = torch.tensor([[False, True, True, True, True, True]])


def test_worked_example_of_the_two_definitions() -> None:
    """Document 004: scaled by 1 / (1 - p) in question 34, renormalised in question 33; the first weight is dropped."""
    scaled = FIRST_ROW * ALL_BUT_THE_FIRST / (1 - 0.1)
    torch.testing.assert_close(scaled[0], torch.tensor([0, 1 / 9, 0, 0, 1 / 9, 0], dtype=torch.float64))
    torch.testing.assert_close(
        renormalize(FIRST_ROW, ALL_BUT_THE_FIRST)[0], torch.tensor([0, 0.5, 0, 0, 0.5, 0], dtype=torch.float64)
    )


@pytest.mark.parametrize(("kind", "left"), [(DropWeights, 1 / 9), (RenormalizedDropout, 0.5), (KeyDropout, 1 / 9)])
def test_worked_example_through_the_modules(
    kind: type[DropWeights], left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same draw given to each kind: the first of six is dropped."""
    kept = torch.tensor([0.0, 1, 1, 1, 1, 1]).double() / 0.9
    monkeypatch.setattr(sys.modules[KeyDropout.__module__], "drop_mask", lambda x, p: kept.view(x.shape))
    weights = kind(0.1)(FIRST_ROW[None, None], DenseSupport(), torch.ones(1, 1, 6, 2, dtype=torch.float64))
    wanted = torch.tensor([0, left, 0, 0, left, 0], dtype=torch.float64)
    torch.testing.assert_close(weights.flatten(), wanted)


def layouts() -> list[tuple[DenseSupport | EdgeSupport, torch.Tensor, torch.Tensor]]:
    """Supports with a row of no key, uniform weights on them, and values."""
    permitted = torch.rand(2, 1, 40, 30, generator=torch.Generator().manual_seed(0)) < 0.7
    permitted[0, 0, 3] = False
    dense = DenseSupport(permitted)
    edges = EdgeSupport.from_edges(permitted[0, 0].T.nonzero().T, 40, 30)
    return [
        (dense, dense.softmax(torch.zeros(2, 3, 40, 30, dtype=torch.float64)), torch.ones(2, 3, 30, 1)),
        (edges, edges.softmax(torch.zeros(len(edges.pattern), 3, dtype=torch.float64)), torch.ones(30, 3, 1)),
    ]


def test_renormalised_rows_keep_their_sum() -> None:
    """Unless all of a row is dropped, which p = 0.95 does often; then zeros. Draws differ by head and query."""
    for support, weights, value in layouts():
        for p in (0.3, 0.95):
            torch.manual_seed(0)
            dropped = support.to_dense(RenormalizedDropout(p)(weights, support, value), 40, 30)
            before = support.to_dense(weights, 40, 30)
            left = dropped.sum(-1)
            torch.testing.assert_close(left[left > 0], before.sum(-1)[left > 0])
            assert (left == 0).any()
            assert (left > 0).any()
            survivors = dropped > 0
            assert not survivors[before == 0].any()
            rate = survivors.sum() / (before > 0).sum()
            assert abs(rate.item() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / (before > 0).sum().item())
            shares = dropped / left.clamp(min=1e-9).unsqueeze(-1)  # the weights were alike, and so are the survivors
            count = survivors.sum(-1, keepdim=True).clamp(min=1)
            torch.testing.assert_close(shares, survivors.double() / count)


def test_gradients_of_renormalised_rows() -> None:
    """Also in a row that lost everything."""
    weights = torch.rand(4, 5, dtype=torch.float64, requires_grad=True)
    kept = torch.rand(4, 5, generator=torch.Generator().manual_seed(0)) < 0.6
    kept[1] = False
    assert torch.autograd.gradcheck(lambda x: renormalize(x, kept), weights)
    assert not renormalize(weights, kept)[1].any()


def test_whole_keys_are_dropped() -> None:
    """For every query of a head alike, but each head and example by itself; the rest scaled by 1 / (1 - p)."""
    for support, weights, value in layouts():
        torch.manual_seed(0)
        dropped = support.to_dense(KeyDropout(0.5)(weights, support, value), 40, 30)
        before = support.to_dense(weights, 40, 30)
        factor = (dropped / before).nan_to_num(-1.0)
        for each in factor.flatten(0, 1):
            for column in each.T:
                assert len({round(x, 9) for x in column.tolist() if x >= 0}) == 1
        assert set(factor.flatten().round(decimals=6).tolist()) == {-1.0, 0.0, 2.0}
        kept = factor.amax(-2)
        assert not torch.equal(kept[0, 0], kept[0, 1])
        assert 0.2 < (kept > 0).double().mean() < 0.8


@pytest.mark.parametrize("kind", [RenormalizedDropout, KeyDropout])
def test_other_kinds_in_a_site(kind: type[DropWeights]) -> None:
    """Given as a factory's partial; nothing is dropped in evaluation, and no fused kernel drops otherwise."""
    attend = AttentionFactory(score=ScaledDot, normalizer=Softmax, dropout=lambda: kind(0.5))(4, 2)
    assert type(attend.dropout) is kind
    x = torch.randn(1, 2, 9, 4, requires_grad=True)
    whole = Attention(ScaledDot(), Softmax())(x, x, x, DenseSupport(causal=True))[0]
    torch.manual_seed(0)
    context = attend(x, x, x, DenseSupport(causal=True))[0]
    assert (context - whole).abs().max() > 0.01
    context.sum().backward()
    assert x.grad.isfinite().all()
    torch.testing.assert_close(attend.eval()(x, x, x, DenseSupport(causal=True))[0], whole)


@pytest.mark.parametrize("kind", [DropWeights, RenormalizedDropout, KeyDropout])
@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan])
def test_a_kind_of_dropout_has_a_probability(kind: type[DropWeights], p: float) -> None:
    with pytest.raises(ValueError, match="p is to be a number of at least 0 and below 1"):
        kind(p)


def test_the_layer_is_torch_s_by_the_function() -> None:
    layer, x = Dropout(0.3), torch.ones(9, 5)
    assert isinstance(layer, nn.Dropout)
    torch.manual_seed(4)
    dropped = layer(x)
    torch.manual_seed(4)
    assert torch.equal(dropped, dropout(x, 0.3, True))
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("heaviest", [3.0, 30.0, 100.0, 600.0])
def test_the_heaviest_key_is_dropped(dtype: torch.dtype, heaviest: float) -> None:
    """The kept weights are scaled by up to 1e43 and more: the row keeps its sum, or is zero if no weight is left."""
    scores = torch.tensor([[1.0, 2.0, heaviest]], dtype=dtype, requires_grad=True)
    kept = torch.tensor([[True, True, False]])
    made = renormalize(scores.softmax(-1), kept)
    (made * torch.tensor([3.0, -1.0, 5.0], dtype=dtype)).sum().backward()
    is_left = scores.softmax(-1)[0, :2].any()
    wanted = torch.tensor([1.0, 2.0], dtype=dtype).softmax(0) if is_left else torch.zeros(2, dtype=dtype)
    torch.testing.assert_close(made[0, :2].detach(), wanted, rtol=0.02, atol=0.0)  # denormals have few digits
    assert scores.grad.isfinite().all()
    if heaviest <= 30.0:
        alone = torch.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
        (alone.softmax(-1) * torch.tensor([3.0, -1.0], dtype=dtype)).sum().backward()
        torch.testing.assert_close(scores.grad[0, :2], alone.grad)


@pytest.mark.parametrize(("dtype", "n"), [(torch.float64, 50), (torch.float32, 200)])
def test_rows_whose_weights_fade_are_renormalised(dtype: torch.dtype, n: int) -> None:
    """Monotonic attention's last rows have weights far below the smallest normal number."""
    torch.manual_seed(0)
    attend = Attention(ScaledDot(), Monotonic(heads=2, inference="expected"), dropout=RenormalizedDropout(0.5)).train()
    x = torch.randn(2, 2, n, 8, dtype=dtype, requires_grad=True)
    attend.to(dtype)
    context, _ = attend(x, x, x, DenseSupport())
    context.square().sum().backward()
    assert context.isfinite().all()
    assert x.grad.isfinite().all()
    assert attend.normalizer.offset.grad.isfinite().all()
