"""Recording changes nothing: outputs and gradients are equal to the last bit with and without an open recorder."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from attention_cases import (
    DTYPES,
    FUSED,
    MASKS,
    NORMALISERS,
    SCORES,
    Shape,
    assert_close,
    assert_same,
    complete,
    inputs,
    loss,
    masked,
    run,
    site,
)
from tiers import every_pair
from torch import Tensor, nn

from zoo.attention import (
    Attention,
    AttentionFactory,
    Constant,
    Degree,
    DenseSupport,
    EdgeSupport,
    MultiheadAttention,
    ScaledDot,
    Softmax,
    Support,
    record,
)

every_mechanism = pytest.mark.parametrize(
    ("score", "normaliser"), [(score, normaliser) for score in SCORES for normaliser in NORMALISERS]
)
SHAPE = Shape()


def autocast() -> AbstractContextManager[object]:
    return torch.autocast("cpu", torch.bfloat16)


def check_unchanged(attend: Attention, tensors: dict[str, Tensor], support: Support, within: bool = False) -> None:
    """In evaluation and in training, where dropout draws from the same seed; recorded by one recorder or by two."""
    for training, options in ((False, [{}]), (True, [{"heads": [1]}, {}])):
        attend.train(training)
        plain = run(attend, tensors, support, within=[autocast()] if within else [])
        recorders = [record(attend, **each) for each in options]
        observed = run(attend, tensors, support, within=[*recorders, *([autocast()] if within else [])])
        assert_same(plain, observed)


@every_pair(score=SCORES.keys(), normaliser=NORMALISERS.keys(), kind=MASKS)
def test_dense_attention_is_not_changed(score: str, normaliser: str, kind: str) -> None:
    support, _ = masked(kind, SHAPE)
    for dtype in DTYPES:
        attend = site(score, normaliser, SHAPE, dtype, dropout=0.3)
        check_unchanged(attend, inputs(SHAPE, dtype), support)


@every_pair(score=SCORES.keys(), normaliser=NORMALISERS.keys(), kind=["none", "causal+any"])
def test_dense_attention_is_not_changed_under_autocast(score: str, normaliser: str, kind: str) -> None:
    support, _ = masked(kind, SHAPE)
    attend = site(score, normaliser, SHAPE, torch.float32, dropout=0.3)
    check_unchanged(attend, inputs(SHAPE, torch.float32), support, within=True)


@every_mechanism
def test_attention_over_edges_is_not_changed(score: str, normaliser: str) -> None:
    support = EdgeSupport.from_edges(torch.randint(0, 4, (2, 9), generator=torch.Generator().manual_seed(0)), 5, 4)
    for dtype in DTYPES:
        tensors = {name: x[0].transpose(0, 1) for name, x in inputs(SHAPE, dtype).items()}
        check_unchanged(site(score, normaliser, SHAPE, dtype, dropout=0.3), tensors, support)
    tensors = {name: x[0].transpose(0, 1) for name, x in inputs(SHAPE, torch.float32).items()}
    check_unchanged(site(score, normaliser, SHAPE, torch.float32, dropout=0.3), tensors, support, within=True)


def test_fixed_weights_are_not_changed() -> None:
    edges = torch.randint(0, 5, (2, 9), generator=torch.Generator().manual_seed(0))
    support = EdgeSupport.from_edges(edges, 5, self_loops=True)
    tensors = {name: x[0].transpose(0, 1) for name, x in inputs(SHAPE._replace(keys=5)).items()}
    check_unchanged(Attention(Constant(), Degree(), dropout=0.3), tensors, support)


@pytest.mark.parametrize("low_precision", [False, True])
def test_a_model_is_not_changed(low_precision: bool) -> None:
    """Projections, their gradients under autocast's cache of casts, and dropout of the next layer."""
    torch.manual_seed(0)
    heads = [
        MultiheadAttention(dim=12, heads=3, attend=AttentionFactory(score=ScaledDot, normalizer=Softmax, dropout=0.2))
        for _ in range(2)
    ]
    model = nn.ModuleList([heads[0], nn.Dropout(0.2), heads[1]])
    x = torch.randn(2, 5, 12)
    results = []
    for recorder in (nullcontext(), record(model)):
        model.zero_grad()
        torch.manual_seed(1)
        with recorder, autocast() if low_precision else nullcontext():
            output = model[2](model[1](model[0](x, None, DenseSupport(causal=True))[0]))[0]
        loss(output.float()).backward()
        results.append([output, *(p.grad for p in model.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize(("score", "normaliser"), sorted(FUSED))
@pytest.mark.parametrize("kind", MASKS)
def test_recording_with_gradient_agrees_with_the_fused_path(score: str, normaliser: str, kind: str) -> None:
    support, _ = masked(kind, SHAPE)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, None)):
        attend, tensors = site(score, normaliser, SHAPE, dtype), inputs(SHAPE, dtype)
        observed = run(attend, tensors, support, within=[record(attend, grad=True)])
        assert_close(observed, run(attend, tensors, support), tolerance)


@every_pair(score=SCORES.keys(), normaliser=NORMALISERS.keys(), over_edges=[False, True])
def test_gradients_flow_from_recorded_weights(score: str, normaliser: str, over_edges: bool) -> None:
    """A penalty on the weights reaches whatever made them; without `grad` the weights are constants."""
    attend, tensors, support = site(score, normaliser, SHAPE), inputs(SHAPE), DenseSupport()
    if over_edges:
        tensors, support = {name: x[0].transpose(0, 1) for name, x in tensors.items()}, complete(5, 4)
    leaves = [tensors["query"].requires_grad_(), tensors["key"].requires_grad_(), *attend.parameters()]
    with record(attend, grad=True) as maps:
        attend(tensors["query"], tensors["key"], tensors["value"], support)
    with record(attend) as without:
        attend(tensors["query"], tensors["key"], tensors["value"], support)
    weights = maps[""].weights
    assert torch.equal(without[""].weights, weights)
    assert not without[""].weights.requires_grad
    if normaliser == "uniform" or score == "constant":
        assert not weights.requires_grad  # fixed weights have nothing to learn
        return
    expected = attend.weights(tensors["query"], tensors["key"], support)
    gradients = torch.autograd.grad(weights.square().sum(), leaves)
    for gradient, other in zip(gradients, torch.autograd.grad(expected.square().sum(), leaves), strict=True):
        assert gradient.any()
        assert torch.equal(gradient, other)


def test_the_fused_kernel_runs_while_a_recorder_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    kernel = torch.nn.functional.scaled_dot_product_attention

    def counted(*args: object, **options: object) -> Tensor:
        calls.append(1)
        return kernel(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", counted)
    attend, tensors = site("scaled dot", "softmax", SHAPE), inputs(SHAPE)
    for options, expected in (({}, 1), ({"grad": True}, 0)):
        calls.clear()
        run(attend, tensors, DenseSupport(), within=[record(attend, **options)])
        assert len(calls) == expected
