"""The Linformer: softmax over mixtures of the keys."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from attention_cases import DTYPES, Shape, assert_close, assert_same, inputs, loss, masked, run
from torch import Tensor, nn

from zoo.attention import (
    DenseSupport,
    EdgeSupport,
    Linformer,
    MechanismFactory,
    MultiheadAttention,
    Rotary,
    T5Bias,
    record,
)

SHARED = ("nothing", "heads", "heads and values")
SHAPE = Shape(keys=7)
every_sharing = pytest.mark.parametrize("share", SHARED)


def site(share: str = "heads", shape: Shape = SHAPE, length: int = 9, slots: int = 5) -> Linformer:
    torch.default_generator.manual_seed(5)
    return Linformer(dim=shape.width, heads=shape.heads, length=length, slots=slots, share=share).double()


def reference(attend: Linformer, tensors: dict[str, Tensor], allowed: Tensor) -> tuple[Tensor, Tensor]:
    """One head at a time: the context, and the weights that it implies."""
    query, key, value = (tensors[name] for name in ("query", "key", "value"))
    contexts, maps = [], []
    for b, h in itertools.product(range(query.shape[0]), range(query.shape[1])):
        head = h if len(attend.mix_keys) > 1 else 0
        seen = [j for j in range(key.shape[2]) if allowed[b, h, :, j].any()]
        slots = []
        for mix, x in ((attend.mix_keys[head], key[b, h]), (attend.mix_values[head], value[b, h])):
            slots.append(0.0 * mix[:, :1] * x[0])
            for j in seen:
                slots[-1] = slots[-1] + mix[:, j, None] * x[j]
        mixed_keys, mixed_values = slots
        weights = (query[b, h] @ mixed_keys.mT / math.sqrt(query.shape[-1])).softmax(-1)
        contexts.append(weights @ mixed_values)
        columns = torch.zeros(5, key.shape[2]).double()
        columns[:, seen] = attend.mix_values[head][:, seen].detach()
        maps.append(weights.detach() @ columns)
    shape = query.shape[:3]
    return torch.stack(contexts).view(*shape, -1), torch.stack(maps).view(*shape, -1)


@every_sharing
@pytest.mark.parametrize("mask", ["none", "key"])
def test_formula(share: str, mask: str) -> None:
    attend, tensors = site(share), inputs(SHAPE)
    support, allowed = masked(mask, SHAPE)
    leaves = {name: x.clone().requires_grad_() for name, x in tensors.items()}
    expected, _ = reference(attend, leaves, allowed)
    named = {**leaves, **dict(attend.named_parameters())}
    gradients = dict(zip(named, torch.autograd.grad(loss(expected), list(named.values())), strict=True))
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        found = run(attend.to(dtype), {name: x.to(dtype) for name, x in tensors.items()}, support)
        torch.testing.assert_close(found.context.double(), expected.detach(), rtol=tolerance, atol=tolerance)
        for name, gradient in gradients.items():
            bound = tolerance * max(gradient.abs().max().item(), 1.0) * 5
            torch.testing.assert_close(found.gradients[name].double(), gradient, rtol=0.0, atol=bound)


@every_sharing
def test_parameters(share: str) -> None:
    """As many projections as the sharing says, with a variance of 1/slots."""
    attend = Linformer(dim=4, heads=3, length=400, slots=100, share=share)
    shapes = [tuple(p.shape) for p in attend.parameters()]
    assert (
        shapes
        == {
            "nothing": [(3, 100, 400)] * 2,
            "heads": [(1, 100, 400)] * 2,
            "heads and values": [(1, 100, 400)],
        }[share]
    )
    assert attend.mix_keys.var().item() == pytest.approx(0.01, rel=0.05)


def test_padding_is_the_same_as_a_shorter_sequence() -> None:
    attend, tensors = site(), inputs(SHAPE)
    short = {name: x if name == "query" else x[:, :, :4] for name, x in tensors.items()}
    expected, _ = attend(**short, support=DenseSupport())
    mask = (torch.arange(7) < 4).expand(2, 7)
    real = mask[:, None, :, None]
    junk = {name: x if name == "query" else torch.where(real, x, torch.nan) for name, x in tensors.items()}
    found, _ = attend(**junk, support=DenseSupport.from_key_mask(mask))
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-14)


@every_sharing
def test_empty_rows_and_padding(share: str) -> None:
    support, allowed = masked("key", SHAPE)
    unseen = ~allowed.any(-2).unsqueeze(-1)
    for dtype in DTYPES:
        attend, tensors = site(share).to(dtype), inputs(SHAPE, dtype)
        before = run(attend, tensors, support)
        assert before.context.dtype == dtype
        assert not before.context[~allowed.any(-1)].any()
        assert all(gradient.isfinite().all() for gradient in before.gradients.values())
        junk = {name: torch.where(unseen, torch.nan, tensors[name]) for name in ("key", "value")}
        assert_same(before, run(attend, {**tensors, **junk}, support))


def test_no_keys_and_no_queries() -> None:
    for queries, keys in ((3, 0), (0, 3), (0, 0), (1, 1)):
        shape = Shape(queries=queries, keys=keys)
        result = run(site(shape=shape), inputs(shape), DenseSupport())
        assert result.context.shape == (2, 3, queries, 7)
        assert result.context.any() == (queries * keys > 0)


@every_sharing
@pytest.mark.parametrize("mask", ["none", "key"])
def test_it_has_no_weights_over_positions_and_says_so(share: str, mask: str) -> None:
    attend, tensors = site(share), inputs(SHAPE)
    support, allowed = masked(mask, SHAPE)
    plain = run(attend, tensors, support)
    with record(attend) as maps:
        assert_same(plain, run(attend, tensors, support))
    assert not maps
    assert "mixtures of positions" in maps.silent[""]
    with record(attend, implied=True) as maps:
        assert_same(plain, run(attend, tensors, support))
    found = maps[""]
    assert found.implied
    torch.testing.assert_close(found.weights, reference(attend, tensors, allowed)[1], rtol=0.0, atol=1e-12)
    torch.testing.assert_close(
        found.weights @ support.zero_masked(tensors["value"]), plain.context, rtol=0.0, atol=1e-12
    )
    assert (found.weights < 0).any()  # it is no distribution


def test_half_precision_keeps_sums_wide() -> None:
    """A sum over positions that fp16 cannot hold."""
    shape = Shape(1, 1, 2, 3000, 4)
    attend = Linformer(dim=4, heads=1, length=3000, slots=2)
    nn.init.ones_(attend.mix_keys)
    tensors = {name: torch.full_like(x, 30.0) for name, x in inputs(shape, torch.float16).items()}
    nn.init.constant_(attend.mix_values, 1.0 / 3000)
    context, _ = attend(**tensors, support=DenseSupport())
    torch.testing.assert_close(context, torch.full_like(context, 30.0), rtol=1e-2, atol=0.0)


def test_in_multi_head() -> None:
    torch.manual_seed(0)
    for key_heads in (4, 2):
        model = MultiheadAttention(
            dim=16,
            heads=4,
            key_heads=key_heads,
            attend=MechanismFactory(site=lambda dim, heads: Linformer(dim=dim, heads=heads, length=10, slots=3)),
            position=Rotary,
        )
        x = torch.randn(2, 7, 16)
        assert model(x)[0].shape == x.shape
        assert model(x)[0].isfinite().all()


def test_against_the_peer() -> None:
    linformer = pytest.importorskip("linformer")
    torch.manual_seed(0)
    peer = linformer.LinformerSelfAttention(12, 9, k=5, heads=3).double()
    factory = MechanismFactory(site=lambda dim, heads: site(shape=Shape(heads=heads, width=dim)))
    model = MultiheadAttention(dim=12, heads=3, bias=False, attend=factory).double()
    with torch.no_grad():
        for name in ("query", "key", "value"):
            getattr(model, name).weight.copy_(getattr(peer, f"to_{name[0]}").weight)
        model.out = peer.to_out
        model.attend.mix_keys.copy_(peer.proj_k.T)
        model.attend.mix_values.copy_(peer.proj_v.T)
    for length in (9, 6, 1):
        x = torch.randn(2, length, 12, dtype=torch.float64)
        torch.testing.assert_close(model(x)[0], peer(x), rtol=0.0, atol=1e-12)


def test_many_weights_are_left_to_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same context and gradients as where they are written out."""
    attend, tensors = site(), inputs(SHAPE)
    written = run(attend, tensors, DenseSupport())
    monkeypatch.setattr("zoo.attention.linear.linformer._FEW", 0)
    assert_close(run(attend, tensors, DenseSupport()), written, 1e-12)


def test_what_is_refused() -> None:
    attend, tensors = site(), inputs(SHAPE)
    with pytest.raises(ValueError, match="cannot be causal"):
        attend(**tensors, support=DenseSupport(causal=True))
    with pytest.raises(ValueError, match="at most length=9 keys, got 10"):
        attend(**inputs(Shape(keys=10)), support=DenseSupport())
    with pytest.raises(ValueError, match="must be the same for each"):
        attend(**tensors, support=DenseSupport(torch.ones(1, 1, 5, 7, dtype=torch.bool)))
    with pytest.raises(ValueError, match="computes no pairs to which T5Bias could add"):
        attend.set_position(T5Bias(heads=3))
    with pytest.raises(ValueError, match="works on DenseSupport only; a graph"):
        attend.check_layout(EdgeSupport, "a graph")
    with pytest.raises(ValueError, match="length is to be a whole number of at least 1"):
        Linformer(dim=4, heads=2, length=0)
    with pytest.raises((ValueError, TypeError), match="heads and values"):  # the type, where shapes are checked
        Linformer(dim=4, heads=2, length=3, share="layers")
