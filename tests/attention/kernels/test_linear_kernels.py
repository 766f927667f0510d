"""Linear layers by either routine: torch's numbers, gradients and second gradients, whatever the shape."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention.cpu import Processor
from zoo.attention.kernels.cpu import linear as module
from zoo.attention.kernels.cpu.linear import Linear, PrepackedLinear, linear, use_prepacked

ZEN = Processor("", "AuthenticAMD", has_avx512=True, has_bf16=True, has_amx=False)
LARGE, FEW, SMALL = (2, 300, 256), (4, 25, 256), (2, 10, 256)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype).requires_grad_()


@pytest.fixture
def convolutions(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Collects the inputs of convolutions, on a processor where convolutions are faster."""
    monkeypatch.setattr(module, "PROCESSOR", ZEN)
    seen: list[Tensor] = []
    original = F.conv2d

    def conv2d(x: Tensor, *rest: object, **options: object) -> Tensor:
        seen.append(x)
        return original(x, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module.F, "conv2d", conv2d)
    return seen


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("is_strided", [True, False])
@pytest.mark.parametrize(("shape", "width"), [(LARGE, 384), (FEW, 3000)])
def test_equal_to_torch(
    convolutions: list[Tensor], shape: tuple[int, ...], width: int, threads: int, has_bias: bool, is_strided: bool
) -> None:
    """Many rows are convolved with the weight; with few rows the weight is, with them."""
    x, weight = drawn(*shape), drawn(width, 256)
    bias = drawn(width) if has_bias else None
    given = x.transpose(0, 1).contiguous().transpose(0, 1) if is_strided else x
    leaves = [x, weight, *([] if bias is None else [bias])]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = linear(given, weight, bias)
        assert [each.shape[2] for each in convolutions] == [600 if width == 384 else 3000]
        expected = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
        assert found.is_contiguous()
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
        ours = torch.autograd.grad(found.square().mean(), leaves)
        theirs = torch.autograd.grad(expected.square().mean(), leaves)
    finally:
        torch.set_num_threads(before)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_second_gradients(convolutions: list[Tensor]) -> None:
    x, weight = drawn(*LARGE), drawn(256, 256)
    found = []
    for product in (linear, F.linear):
        (gradient,) = torch.autograd.grad(product(x, weight).square().mean(), x, create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), weight)[0])
    assert len(convolutions) == 1
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("shape", "dtype", "device"),
    [
        (SMALL, torch.float32, "cpu"),
        (LARGE, torch.float64, "cpu"),
        (LARGE, torch.bfloat16, "cpu"),
        (LARGE, torch.float32, "meta"),
        ((0, 300, 256), torch.float32, "cpu"),
        ((256,), torch.float32, "cpu"),
    ],
)
def test_what_stays_with_torch(
    convolutions: list[Tensor], shape: tuple[int, ...], dtype: torch.dtype, device: str
) -> None:
    x, weight = drawn(*shape, dtype=dtype).to(device), drawn(384, 256, dtype=dtype).to(device)
    found = linear(x, weight)
    assert found.shape == (*shape[:-1], 384)
    assert found.dtype == dtype
    assert not convolutions
    if device == "cpu":
        assert torch.equal(found, F.linear(x, weight))


def test_autocast_stays_with_torch(convolutions: list[Tensor]) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(drawn(*LARGE), drawn(256, 256)).dtype == torch.bfloat16
    assert not convolutions


def test_the_layer_is_torchs() -> None:
    """Same parameters, same start from the same seed, same hooks."""
    torch.manual_seed(0)
    ours = Linear(256, 384)
    torch.manual_seed(0)
    theirs = nn.Linear(256, 384)
    theirs.load_state_dict(ours.state_dict())
    assert isinstance(ours, nn.Linear)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)
    torch.testing.assert_close(ours(drawn(*LARGE)), theirs(drawn(*LARGE)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_strided", [True, False])
def test_a_weight_is_laid_out_once(monkeypatch: pytest.MonkeyPatch, is_strided: bool) -> None:
    monkeypatch.setattr(module, "PROCESSOR", ZEN)
    wide, base = drawn(500, 700).detach(), drawn(40, 500).detach()
    weight = wide[:, 60:] if is_strided else wide[:, 60:].contiguous()
    packed, laid_out = PrepackedLinear(weight), None
    with torch.no_grad():
        for rows in (40, 8, 40, 1, 3):
            x = drawn(rows, 640)
            assert use_prepacked(x, weight, ZEN) == (rows > 3)
            expected = x.double() @ weight.double().T
            torch.testing.assert_close(packed.product(x).double(), expected, rtol=1e-5, atol=1e-4)
            with_bias = packed.product(x, base[0]).double()
            torch.testing.assert_close(with_bias, expected + base[0].double(), rtol=1e-5, atol=1e-4)
            found = packed.addmm(base[:rows], x)
            torch.testing.assert_close(found.double(), base[:rows].double() + expected, rtol=1e-5, atol=1e-4)
            assert packed._laid_out is not None
            assert laid_out is None or laid_out is packed._laid_out
            laid_out = packed._laid_out
        torch.testing.assert_close(base, drawn(40, 500).detach(), rtol=0.0, atol=0.0)


def test_what_is_not_laid_out() -> None:
    x, weight = drawn(40, 640), drawn(500, 640)
    intel = ZEN._replace(vendor="GenuineIntel")
    assert not use_prepacked(x, weight, ZEN)  # a gradient is recorded
    with torch.no_grad():
        assert use_prepacked(x, weight, ZEN)
        assert not use_prepacked(x, weight, intel)
        assert not use_prepacked(x.double(), weight.double(), ZEN)
        assert not use_prepacked(x.to("meta"), weight.to("meta"), ZEN)
        with torch.autocast("cpu", torch.bfloat16):
            assert not use_prepacked(x, weight, ZEN)
