"""tanh by either routine: torch's numbers, gradients and second gradients."""

from __future__ import annotations

import pytest
import torch

from zoo.attention.cpu import Processor
from zoo.attention.kernels.cpu import tanh as module
from zoo.attention.kernels.cpu.tanh import tanh, tanh_, use_sigmoid

ZEN = Processor("", "AuthenticAMD", has_avx512=True, has_bf16=True, has_amx=False)
INTEL = ZEN._replace(vendor="GenuineIntel")


def numbers(count: int = 2**14, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(0), dtype=dtype) * 4.0


def test_by_the_sigmoid_it_is_tanh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROCESSOR", ZEN)
    x = numbers().requires_grad_()
    assert use_sigmoid(x, ZEN)
    with torch.no_grad():
        torch.testing.assert_close(tanh(x), torch.tanh(x), rtol=0.0, atol=2e-7)
    found, expected = tanh(x), torch.tanh(x)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=2e-7)
    for order in range(2):
        of = (torch.autograd.grad(y.square().sum(), x, create_graph=True)[0] for y in (found, expected))
        found, expected = of
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, msg=f"gradient {order + 1}")


@pytest.mark.parametrize("processor", [ZEN, INTEL], ids=["sigmoid", "torch"])
@pytest.mark.parametrize("with_gradient", [False, True])
def test_in_place_of_a_sum_it_is_the_same(
    processor: Processor, with_gradient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two gradients too; the numbers that were added stay as they are."""
    monkeypatch.setattr(module, "PROCESSOR", processor)
    one, other = numbers().requires_grad_(with_gradient), numbers().flip(0)
    before = one.detach().clone(), other.clone()
    total = one + other
    found, expected = tanh_(total), torch.tanh(one + other)
    assert (found.data_ptr() == total.data_ptr()) == (not with_gradient or processor is INTEL)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=2e-7)
    assert torch.equal(one, before[0])
    assert torch.equal(other, before[1])
    for _ in range(2 if with_gradient else 0):
        of = (torch.autograd.grad(y.square().sum(), one, create_graph=True)[0] for y in (found, expected))
        found, expected = of
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_numbers_that_are_none_stay() -> None:
    x = numbers()
    x[:3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    assert tanh(x)[0].isnan()
    assert tanh(x)[1:3].tolist() == [1.0, -1.0]


@pytest.mark.parametrize(
    ("x", "processor"),
    [(numbers(), INTEL), (numbers(100), ZEN), (numbers(dtype=torch.float64), ZEN), (numbers().to("meta"), ZEN)],
)
def test_what_stays_with_torch(x: torch.Tensor, processor: Processor) -> None:
    assert not use_sigmoid(x, processor)
