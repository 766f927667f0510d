"""Laws of every mechanism: padding, whatever it holds, changes nothing; nor does what comes later."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from attention_cases import NORMALISERS, SEQUENCE_SCORES
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import each_once
from torch import Tensor, nn

from zoo.attention import (
    ActivationUnit,
    ALiBi,
    Attention,
    BigBird,
    CoverageAware,
    DenseSupport,
    Gaussian,
    HardReinforce,
    HardStraightThrough,
    LinearAttention,
    Linformer,
    LocalM,
    LocalP,
    LocationAware,
    Monotonic,
    MultiheadAttention,
    Performer,
    Position,
    Rotary,
    ScaledDot,
    Shaw,
    SlidingWindow,
    Softmax,
    T5Bias,
    TransformerXL,
    Unnormalized,
)
from zoo.attention.kernels import fused, fused_blocks

Maker = Callable[[int, int], Any]


def scaled(restrict: nn.Module | None = None, normalizer: nn.Module | None = None) -> Attention:
    return Attention(ScaledDot(), Softmax() if normalizer is None else normalizer, restrict=restrict)


MECHANISMS: dict[str, Maker] = {
    **{score: lambda d, h, make=make: Attention(make(d, h), Softmax()) for score, make in SEQUENCE_SCORES.items()},
    **{name: lambda d, h, make=make: scaled(normalizer=make()) for name, make in NORMALISERS.items()},
    "monotonic": lambda d, h: scaled(normalizer=Monotonic(heads=h, inference="expected")),
    "activation unit": lambda d, h: Attention(ActivationUnit(dim=d, hidden=(5,)), Unnormalized()),
    "window": lambda d, h: scaled(SlidingWindow(radius=2, global_tokens=1)),
    "dilated": lambda d, h: scaled(SlidingWindow(radius=2, dilation=2)),
    "bigbird": lambda d, h: scaled(BigBird(block=2, global_blocks=1, random_blocks=1)),
    "local-m": lambda d, h: scaled(LocalM(radius=2)),
    "local-p": lambda d, h: scaled(LocalP(dim=d, heads=h, radius=2)),
    "linear": lambda d, h: LinearAttention(),
    "performer": lambda d, h: Performer(dim=d, heads=h, features=8),
    "linformer": lambda d, h: Linformer(dim=d, heads=h, length=20, slots=4),
}
POSITIONS: dict[str, Any] = {"alibi": ALiBi, "t5": T5Bias, "shaw": Shaw, "xl": TransformerXL, "rotary": Rotary}
LAYERS: dict[str, Callable[..., MultiheadAttention]] = {
    **{name: partial(MultiheadAttention, attend=make) for name, make in MECHANISMS.items()},
    **{
        name: partial(MultiheadAttention, attend=lambda d, h: scaled(), position=make)
        for name, make in POSITIONS.items()
    },
}
NOT_CAUSAL = ("linformer", "local-p")
GARBAGE = (torch.nan, torch.inf, -torch.inf)
every_layer = pytest.mark.parametrize("name", LAYERS)


def layer_of(name: str) -> MultiheadAttention:
    torch.default_generator.manual_seed(3)
    return LAYERS[name](dim=8, heads=2).double().eval()  # without the noise of monotonic attention's training


def found(
    layer: MultiheadAttention, query: Tensor, source: Tensor | None, support: DenseSupport, real: int
) -> list[Tensor]:
    """The rows up to `real`, and the gradients of a loss of these for all parameters."""
    layer.zero_grad()
    rows = layer(query, source, support)[0][:, :real]
    rows.square().sum().backward()
    zeros = (torch.zeros_like(each) for each in layer.parameters())
    return [
        rows.detach(),
        *(zero if each.grad is None else each.grad for each, zero in zip(layer.parameters(), zeros, strict=True)),
    ]


def check_padding(name: str, length: int, padding: int, garbage: float, is_source: bool) -> None:
    layer, generator = layer_of(name), torch.Generator().manual_seed(length)
    x = torch.randn(2, length, 8, generator=generator, dtype=torch.float64)
    padded = torch.cat([x, torch.full((2, padding, 8), garbage, dtype=x.dtype)], 1)
    support = DenseSupport.from_key_mask(torch.arange(length + padding).expand(2, -1) < length)
    if is_source:
        query = torch.randn(2, 3, 8, generator=generator, dtype=torch.float64)
        pairs = (found(layer, query, each, one, 3) for each, one in ((x, DenseSupport()), (padded, support)))
    else:
        pairs = (found(layer, each, None, one, length) for each, one in ((x, DenseSupport()), (padded, support)))
    for one, other in zip(*pairs, strict=True):
        assert other.isfinite().all()
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-10)


@every_layer
def test_padding(name: str) -> None:
    check_padding(name, 7, 4, torch.nan, is_source=False)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from([name for name in LAYERS if name not in POSITIONS]),
    length=st.integers(1, 9),
    padding=st.integers(1, 9),
    garbage=st.sampled_from(GARBAGE),
)
def test_any_padding(name: str, length: int, padding: int, garbage: float) -> None:
    check_padding(name, length, padding, garbage, is_source=False)


@pytest.mark.parametrize(
    "name", [*SEQUENCE_SCORES, *NORMALISERS, "activation unit", "linear", "performer", "linformer"]
)
def test_padding_of_a_source(name: str) -> None:
    if name == "position aware":
        return  # the last query stands at the last key, padding or not
    for garbage in GARBAGE:
        check_padding(name, 6, 5, garbage, is_source=True)


@every_layer
def test_later_positions_change_nothing_before_them(name: str) -> None:
    if name in NOT_CAUSAL:
        return
    layer, x = layer_of(name), torch.randn(2, 12, 8, dtype=torch.float64)
    before = layer(x, None, DenseSupport(causal=True))[0]
    for start, scale in ((1, 1000.0), (6, -3.0), (11, 0.0)):
        other = torch.cat([x[:, :start], scale * x[:, start:]], 1)
        after = layer(other, None, DenseSupport(causal=True))[0]
        torch.testing.assert_close(after[:, :start], before[:, :start], rtol=0.0, atol=1e-12)


@every_layer
def test_who_sees_nothing_reads_nothing(name: str) -> None:
    layer, x = layer_of(name), torch.randn(2, 6, 8, dtype=torch.float64)
    x[1] = torch.nan
    support = DenseSupport.from_key_mask(torch.tensor([[True] * 6, [False] * 6]))
    rows = layer(x, None, support)[0]
    torch.testing.assert_close(rows[1], layer.out.bias.expand(6, -1))
    rows.square().sum().backward()
    assert all(each.grad is None or each.grad.isfinite().all() for each in layer.parameters())


STEPPED: dict[str, Callable[..., MultiheadAttention]] = {
    **LAYERS,
    **{
        f"local-m at {name}": partial(MultiheadAttention, attend=lambda d, h: scaled(LocalM(radius=2)), position=make)
        for name, make in POSITIONS.items()
    },
    "local-m gaussian": partial(
        MultiheadAttention, attend=lambda d, h: Attention(ScaledDot(), Gaussian(), restrict=LocalM())
    ),
    "global dilated": partial(
        MultiheadAttention, attend=lambda d, h: scaled(SlidingWindow(radius=1, dilation=2, global_tokens=2))
    ),
    "location": partial(MultiheadAttention, attend=lambda d, h: Attention(LocationAware(dim=d, heads=h), Softmax())),
    "coverage": partial(MultiheadAttention, attend=lambda d, h: Attention(CoverageAware(dim=d, heads=h), Softmax())),
}
NOT_BY_STEPS = (*NOT_CAUSAL, "bigbird")


@each_once(name=STEPPED.keys(), key_heads=[2, 1])
def test_steps_are_the_rows_of_the_whole_pass(name: str, key_heads: int) -> None:
    """Self-attention that continues from its memory, by parts of any size, with padding and without."""
    torch.default_generator.manual_seed(3)
    layer = STEPPED[name](dim=8, heads=2, key_heads=key_heads).double().eval()
    if name in NOT_BY_STEPS:
        with pytest.raises(ValueError, match=r"causal|step by step"):
            layer.step(torch.zeros(1, 1, 8, dtype=torch.float64))
        return
    x, padded = torch.randn(2, 9, 8, dtype=torch.float64), torch.ones(2, 9, dtype=torch.bool)
    padded[0, :3] = padded[1, 4] = False
    for mask, parts in itertools.product((torch.ones_like(padded), padded), ([1] * 9, [3, 1, 0, 2, 3])):
        whole = layer(x, None, DenseSupport.from_key_mask(mask, causal=True))[0]
        state, rows = None, []
        for part, stop in zip(torch.split(x, parts, 1), itertools.accumulate(parts), strict=True):
            row, state = layer.step(part, state, DenseSupport.from_key_mask(mask[:, :stop], causal=True))
            rows.append(row)
        torch.testing.assert_close(torch.cat(rows, 1), whole, rtol=1e-9, atol=1e-10)


class Blind(Position):
    """A bias of -inf at all keys of one query."""

    def bias(self, query: Tensor, key: Tensor, support: Any, scale: float) -> Tensor:
        row = torch.zeros(1, 1, query.shape[2], device=query.device)
        row[:, :, 2] = -torch.inf
        return support.gather_queries(row) + support.gather_keys(torch.zeros(1, 1, key.shape[2], device=query.device))


WEIGHTED = {
    **{name: make for name, make in MECHANISMS.items() if name not in ("linear", "performer", "linformer", "uniform")},
    "hard": lambda d, h: scaled(normalizer=HardStraightThrough()),
    "reinforced": lambda d, h: scaled(normalizer=HardReinforce()),
}


@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16", "float16", "autocast"])
@pytest.mark.parametrize("name", WEIGHTED)
def test_whom_a_bias_forbids_everything_reads_nothing(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every kernel: short and long rows, with a mask and without, causal and not, blocks of any size."""
    monkeypatch.setattr(fused, "PROCESSOR", fused.PROCESSOR._replace(has_bf16=True))
    monkeypatch.setattr(fused_blocks, "_LARGEST", 0 if precision == "float32" else 1 << 26)
    dtype = torch.float32 if precision == "autocast" else getattr(torch, precision)
    torch.default_generator.manual_seed(3)
    attend = WEIGHTED[name](8, 2).to(dtype)
    attend.set_position(Blind())
    for length, causal, dropout in ((6, False, 0.0), (6, True, 0.2), (100, False, 0.2), (100, True, 0.0)):
        if causal and name in NOT_CAUSAL:
            continue
        attend.dropout.p = dropout
        tensors = [torch.randn(2, 2, length, 8, dtype=dtype, requires_grad=True) for _ in range(3)]
        mask = None if dropout else torch.arange(length).view(1, 1, 1, -1) < length - 2
        support = DenseSupport(mask, causal=causal)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
            state = attend.start(tensors[0], tensors[1], support) if attend.is_stateful else None
            context = attend(*tensors, support, state)[0]
            weights = attend.weights(tensors[0], tensors[1], support, state)
        assert (context[:, :, 2] == 0).all()
        assert weights.isfinite().all()
        context.float().square().mean().backward()
        gradients = [x.grad for x in (*tensors, *attend.parameters()) if x.grad is not None]
        assert all(each.isfinite().all() for each in gradients)
        assert tensors[0].grad is None or (tensors[0].grad[:, :, 2] == 0).all()
