"""Causal attention in blocks of queries is causal attention, and draws for no pair that cannot exist."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.attention import Attention, DenseSupport, ScaledDot, Softmax
from zoo.attention.kernels import fused
from zoo.attention.kernels.cpu import causal
from zoo.attention.kernels.cpu.causal import causal_attention

SHAPES = [(2, 3, 1, 4, 5), (1, 1, 2, 3, 3), (2, 2, 48, 4, 4), (1, 2, 49, 4, 3), (3, 1, 107, 5, 2)]


def tensors(batch: int, heads: int, length: int, width: int, values: int, dtype: torch.dtype) -> list[Tensor]:
    """Laid out as projections give them: heads are views."""
    generator = torch.Generator().manual_seed(length)

    def draw(last: int) -> Tensor:
        flat = torch.randn(batch, length, heads * last, generator=generator, dtype=torch.float64).to(dtype)
        return flat.view(batch, length, heads, last).transpose(1, 2).detach().requires_grad_()

    return [draw(width), draw(width), draw(values)]


def written_out(query: Tensor, key: Tensor, value: Tensor, scale: float, kept: Tensor | None = None) -> Tensor:
    """By the formula, a query at a time; `kept` is what each weight is multiplied with."""
    rows = []
    for i in range(query.shape[2]):
        weights = (scale * (query[:, :, i, None] * key[:, :, : i + 1]).sum(-1)).exp()
        weights = weights / weights.sum(-1, keepdim=True)
        weights = weights if kept is None else weights * kept[:, :, i, : i + 1]
        rows.append((weights.unsqueeze(-1) * value[:, :, : i + 1]).sum(2))
    return torch.stack(rows, 2)


def with_gradients(context: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    wanted = torch.linspace(-1, 1, context.numel(), dtype=context.dtype).view(context.shape)
    return [context, *torch.autograd.grad((context * wanted).sum(), inputs)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_against_the_formula(shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    inputs, exact = tensors(*shape, dtype), tensors(*shape, torch.float64)
    found = with_gradients(causal_attention(*inputs, 0.7, 0.0), inputs)
    expected = with_gradients(written_out(*exact, 0.7), exact)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_against_the_formula(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the draws of each block written down, and put where their pairs are."""
    batch, heads, length = shape[:3]
    drawn, kept = [], torch.full((batch, heads, length, length), math.nan, dtype=torch.float64)
    monkeypatch.setattr(causal, "drop_mask", lambda x, p: drawn.append(torch.rand_like(x).gt(p).to(x) * 3) or drawn[-1])
    inputs = tensors(*shape, torch.float64)
    found = with_gradients(causal_attention(*inputs, 0.7, 0.4), inputs)
    row = 0
    for mask in drawn:
        rows, keys = mask.shape[1:]
        kept[:, :, row : row + rows, :keys] = mask.view(batch, heads, rows, keys)
        row += rows
    assert row == length
    for one, other in zip(found, with_gradients(written_out(*inputs, 0.7, kept), inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_the_expectation_is_that_without_dropout() -> None:
    inputs = tensors(1, 1, 60, 4, 4, torch.float32)
    torch.manual_seed(0)
    draws = torch.cat([causal_attention(*inputs, 0.5, 0.3) for _ in range(2000)]).detach()
    whole = causal_attention(*inputs, 0.5, 0.0).detach()[0]
    error = (draws.mean(0) - whole) / (draws.std(0) / math.sqrt(len(draws)))
    assert error.abs().max() < 5
    assert draws.std(0)[0, 0].min() > 0.1


class _Sizes(TorchDispatchMode):
    """Records the size of the largest tensor and the number of random numbers drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.drawn = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else (found,):
            if isinstance(each, Tensor):
                self.largest = max(self.largest, each.numel())
                self.drawn += each.numel() * 4 * (func.overloadpacket is torch.ops.aten.random_)
        return found


def test_half_of_the_pairs_are_drawn_and_no_square_is_made() -> None:
    length = 1024
    inputs = tensors(1, 1, length, 4, 4, torch.float32)
    with _Sizes() as sizes:
        causal_attention(*inputs, 0.5, 0.3).sum().backward()
    assert 0.5 * length**2 < sizes.drawn < 0.55 * length**2
    assert sizes.largest <= causal._ROWS * length


@pytest.mark.parametrize("length", [2, 40, 120])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_a_site_takes_it_in_training(length: int, scale: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the scale and temperature of the site; without dropout only from the length on at which it pays."""
    calls = []
    monkeypatch.setattr(fused, "causal_attention", lambda *x: calls.append(x) or causal_attention(*x))
    attend = Attention(ScaledDot(), Softmax(temperature=2.0), dropout=0.5 if scale is None else 0.0)
    inputs = tensors(2, 2, length, 4, 4, torch.float32)
    attend(*inputs, DenseSupport(causal=True))
    assert len(calls) == (scale is None or length > 96)
    context = attend.eval()(*inputs, DenseSupport(causal=True))[0]
    torch.testing.assert_close(context, written_out(*inputs, 0.25), rtol=0, atol=1e-5)


def test_what_it_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other precisions, autocast of float32, compiled graphs, shared keys and other supports stay with PyTorch's."""
    monkeypatch.setattr(fused, "causal_attention", lambda *x: pytest.fail("taken"))
    attend, support = Attention(ScaledDot(), Softmax(), dropout=0.5), DenseSupport(causal=True)
    inputs = tensors(2, 2, 100, 4, 4, torch.float32)
    attend(*(x.half() for x in inputs), support)
    attend(*(x.double() for x in inputs), support)
    attend(*(x.to("meta") for x in inputs), support)
    attend(inputs[0], *(x[:, :1] for x in inputs[1:]), support)
    attend(inputs[0][:, :, 50:], *inputs[1:], support)
    with torch.autocast("cpu", torch.bfloat16):
        attend(*inputs, support)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    attend(*inputs, support)


def test_nothing_is_kept_without_gradients() -> None:
    inputs = [x.detach() for x in tensors(2, 1, 100, 4, 4, torch.float32)]
    found = causal_attention(*inputs, 0.5, 0.0)
    assert found.grad_fn is None
    expected = F.scaled_dot_product_attention(*inputs, is_causal=True, scale=0.5)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_second_derivative_is_refused() -> None:
    inputs = tensors(1, 1, 5, 4, 4, torch.float32)
    (first,) = torch.autograd.grad(causal_attention(*inputs, 0.5, 0.0).square().sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
