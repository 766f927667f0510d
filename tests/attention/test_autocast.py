"""Every mechanism under autocast: layers around a site give half precision or not, each for itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from attention_cases import SCORES, Run, Shape, inputs, loss, run
from test_mechanism_laws import LAYERS, MECHANISMS, NOT_CAUSAL, POSITIONS, scaled

from zoo.attention import (
    AlternatingCoAttention,
    Attention,
    AttentionFlow,
    CoAttention,
    DenseSupport,
    Softmax,
    TwoWayAttention,
)
from zoo.attention.factories import make_sized
from zoo.attention.kernels import fused, fused_blocks

HALF = (torch.bfloat16, torch.float16)
BETWEEN = (CoAttention, AlternatingCoAttention, TwoWayAttention, AttentionFlow)
TOLERANCE = {torch.bfloat16: 0.1, torch.float16: 0.02}


@pytest.fixture(params=HALF, ids=["bf16", "fp16"])
def low(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """A half precision, each with other kernels: those of a processor with bf16, and of large blocks; PyTorch's."""
    monkeypatch.setattr(fused, "PROCESSOR", fused.PROCESSOR._replace(has_bf16=True))
    if request.param == torch.bfloat16:
        monkeypatch.setattr(fused_blocks, "_LARGEST", 0)
    return request.param


def sites() -> dict[str, Any]:
    placed = {f"at {name}": partial(at_position, make=make) for name, make in POSITIONS.items()}
    return {**MECHANISMS, **placed}


def at_position(dim: int, heads: int, make: Any) -> Attention:
    attend = scaled()
    attend.set_position(make_sized(make, {"dim": dim, "heads": heads}))
    return attend


def mixtures(low: torch.dtype) -> Iterator[dict[str, torch.dtype]]:
    for query, key in itertools.product((torch.float32, low), repeat=2):
        yield {"query": query, "key": key, "value": query}


def computed(attend: Any, tensors: dict[str, torch.Tensor], support: DenseSupport) -> Run:
    """As `run`, also for mechanisms that begin with a state."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in tensors.items()}
    state = attend.start(leaves["query"], leaves["key"], support) if attend.is_stateful else None
    context, _ = attend(leaves["query"], leaves["key"], leaves["value"], support, state)
    loss(context.float()).backward()
    return Run(context.detach(), {name: x.grad for name, x in leaves.items() if x.grad is not None})


@pytest.mark.parametrize("name", sites())
def test_any_input_may_be_half(name: str, low: torch.dtype) -> None:
    """The context is that of single precision, and gradients are numbers of the dtype of their input."""
    torch.default_generator.manual_seed(0)
    attend, exact = sites()[name](8, 2).eval(), inputs(Shape(2, 2, 9, 9, 8), torch.float32)
    exact["value"] = exact["value"][..., :8]  # Shaw's values are as wide as keys
    mask = torch.arange(9) < torch.tensor([[9], [6]])
    for causal in (False, True)[: 1 if name in NOT_CAUSAL else 2]:
        support = DenseSupport.from_key_mask(mask, causal=causal)
        expected = computed(attend, exact, support)
        for dtypes in mixtures(low):
            tensors = {part: x.to(dtypes[part]) for part, x in exact.items()}
            with torch.autocast("cpu", low):
                found = computed(attend, tensors, support)
            torch.testing.assert_close(
                found.context.float(), expected.context, rtol=TOLERANCE[low], atol=TOLERANCE[low]
            )
            for part, gradient in found.gradients.items():
                assert gradient.dtype == dtypes[part]
                assert gradient.isfinite().all()


@pytest.mark.parametrize("length", [40, 130])
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_any_length(length: int, dropout: float, low: torch.dtype) -> None:
    """Short and long rows, with dropout and without, have kernels of their own."""
    attend = Attention(SCORES["scaled dot"](8, 2), Softmax(), dropout=dropout)
    exact = inputs(Shape(1, 2, length, length, 8), torch.float32)
    for causal, dtypes in itertools.product((False, True), mixtures(low)):
        tensors = {part: x.to(dtypes[part]) for part, x in exact.items()}
        found = run(attend, tensors, DenseSupport(causal=causal), within=[torch.autocast("cpu", low)])
        assert found.context.isfinite().all()
        assert all(each.isfinite().all() for each in found.gradients.values())


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("between", BETWEEN)
def test_two_inputs_under_autocast(between: Any, score: str, low: torch.dtype) -> None:
    """One side is projected, and so in half precision, and the other is not."""
    torch.default_generator.manual_seed(0)
    module = between(dim=4, attend=lambda dim, heads: Attention(SCORES[score](dim, heads), Softmax()))
    first, second = torch.randn(2, 5, 4, requires_grad=True), torch.randn(2, 3, 4, requires_grad=True)
    with torch.autocast("cpu", low):
        found = module(first, second)
    both = found if isinstance(found, tuple) else (found,)
    expected = module(first, second)
    for one, other in zip(both, expected if isinstance(expected, tuple) else (expected,), strict=True):
        torch.testing.assert_close(one.float(), other, rtol=TOLERANCE[low], atol=TOLERANCE[low])
    torch.stack([each.float().sum() for each in both]).sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (first, second))


@pytest.mark.parametrize("name", LAYERS)
def test_layers_under_autocast(name: str) -> None:
    """A source of single precision, and queries of a layer before."""
    torch.default_generator.manual_seed(3)
    layer, x = LAYERS[name](dim=8, heads=2), torch.randn(2, 7, 8)
    for query, source in ((x, None), (x.bfloat16(), x), (x, x.bfloat16())):
        with torch.autocast("cpu", torch.bfloat16):
            found, _ = layer(query, source)
        found.float().square().sum().backward()
        assert all(each.grad is None or each.grad.isfinite().all() for each in layer.parameters())
