"""Kernels are chosen by shapes and features of the processor only, and all compute the same formulas."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from zoo.attention import Attention, DenseSupport, ScaledDot, Softmax, T5Bias
from zoo.attention.cpu import KERNELS, PROCESSOR, Processor, _detect, _read_switch, is_enabled, use_cpu_kernels
from zoo.attention.kernels import fused
from zoo.attention.kernels.cpu import causal
from zoo.attention.kernels.cpu.causal import use_causal_blocks
from zoo.attention.kernels.cpu.softmax import use_explicit_softmax
from zoo.attention.kernels.cpu.tanh import use_sigmoid

ZEN = Processor("", "AuthenticAMD", has_avx512=True, has_bf16=True, has_amx=False)
AMX = Processor("", "GenuineIntel", has_avx512=True, has_bf16=True, has_amx=True)
OLD = Processor("", "GenuineIntel", has_avx512=False, has_bf16=False, has_amx=False)
UNKNOWN = Processor("", "", has_avx512=False, has_bf16=False, has_amx=False)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype).requires_grad_()


def sites(length: int, dtype: torch.dtype, heads: int = 2) -> list[Tensor]:
    """Query, key and value as projections give them: heads are views."""
    flat = drawn(2, length, 3, heads, 8, dtype=dtype).detach().permute(2, 0, 3, 1, 4)
    return [each.clone(memory_format=torch.preserve_format).requires_grad_() for each in flat]


def test_the_facts_are_read_once_and_agree() -> None:
    assert _detect() == PROCESSOR
    assert PROCESSOR.has_bf16 or not PROCESSOR.has_amx
    assert PROCESSOR.has_avx512 or not PROCESSOR.has_bf16
    assert AMX.flags == ["avx512", "bf16", "amx"]
    assert UNKNOWN.flags == []


@pytest.mark.parametrize(("processor", "expected"), [(ZEN, True), (AMX, False), (OLD, False), (UNKNOWN, False)])
def test_tanh_goes_by_the_processor(processor: Processor, expected: bool) -> None:
    x = drawn(600, 256)
    assert use_sigmoid(x, processor) == expected
    assert use_sigmoid(torch.zeros_like(x), processor) == expected


@pytest.mark.parametrize(("processor", "expected"), [(ZEN, True), (AMX, True), (OLD, False), (UNKNOWN, False)])
def test_bf16_goes_by_the_processor(processor: Processor, expected: bool) -> None:
    for query, key, value in (sites(20, torch.bfloat16), [torch.zeros_like(x) for x in sites(20, torch.bfloat16)]):
        assert use_explicit_softmax(query, key, value, True, processor) == expected
        assert use_causal_blocks(query, key, value, 0.0, processor) == expected


def test_float32_goes_by_shape() -> None:
    for processor in (ZEN, AMX, OLD, UNKNOWN):
        assert use_explicit_softmax(*sites(65, torch.float32), False, processor)
        assert not use_explicit_softmax(*sites(65, torch.float32), True, processor)
        assert not use_explicit_softmax(*sites(200, torch.float32), False, processor)
        assert use_causal_blocks(*sites(200, torch.float32), 0.0, processor)
    query, key, value = sites(20, torch.float32)
    assert not use_explicit_softmax(query, key[:, :1], value[:, :1], False, ZEN)  # grouped keys
    assert not use_explicit_softmax(query.to("meta"), key.to("meta"), value.to("meta"), False, ZEN)
    assert not use_explicit_softmax(query.double(), key.double(), value.double(), False, ZEN)


SUPPORTS: dict[str, Callable[[int], DenseSupport]] = {
    "plain": lambda n: DenseSupport(),
    "causal": lambda n: DenseSupport(causal=True),
    "masked": lambda n: DenseSupport(torch.arange(n).ne(1).view(1, 1, 1, n)),
    "rows without keys": lambda n: DenseSupport(torch.arange(n).ne(3).view(1, 1, n, 1)),
}


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("support", SUPPORTS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("processor", [ZEN, OLD])
def test_attention_is_the_same(
    processor: Processor,
    dtype: torch.dtype,
    tolerance: float,
    support: str,
    has_bias: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Contexts and gradients against the written-out formula in float64, of the same numbers."""
    monkeypatch.setattr(fused, "PROCESSOR", processor)
    inputs = sites(65, dtype)
    torch.manual_seed(0)
    position = T5Bias(heads=2, buckets=8, distance=20) if has_bias else None
    attend = Attention(ScaledDot(), Softmax())
    if position is not None:
        attend.set_position(position)
    found, _ = attend(*inputs, SUPPORTS[support](65))
    exact = [x.detach().double().requires_grad_() for x in inputs]
    scores = exact[0] @ exact[1].transpose(-1, -2) / 8**0.5
    if position is not None:
        offsets = torch.arange(65) - torch.arange(65)[:, None]
        scores = scores + position.table.double()[:, position.bucket(offsets)]
    mask = SUPPORTS[support](65).mask(65, 65, torch.device("cpu"))
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    expected = scores.softmax(-1).nan_to_num(0.0) @ exact[2]
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    wanted = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view(found.shape)
    ours = torch.autograd.grad((found.double() * wanted).sum(), inputs)
    theirs = torch.autograd.grad((expected * wanted).sum(), exact)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance * other.abs().max().item())


@pytest.mark.parametrize("support", ["plain", "causal"])
def test_autocast_leaves_weights_in_half(support: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the largest tensors of a step: as float32 they would be written and read once more each."""

    class Weights(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and out.dim() > 2 and out.shape[-1] == 40:
                seen.add(out.dtype)
            return out

    seen: set[torch.dtype] = set()
    monkeypatch.setattr(fused, "PROCESSOR", ZEN)
    with torch.autocast("cpu", torch.bfloat16), Weights():
        found, _ = Attention(ScaledDot(), Softmax())(*sites(40, torch.bfloat16), SUPPORTS[support](40))
    found.sum().backward()
    assert seen - {torch.bool} == {torch.bfloat16}


def test_sums_over_blocks_are_single() -> None:
    """A key's gradient comes from all later blocks: added up in bfloat16 it would lose what is small."""
    inputs = sites(48 * 40, torch.bfloat16, heads=1)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    gradients = []
    for query, key, value in (inputs, exact):
        found = causal.causal_attention(query, key, value, 0.3, 0.0)
        gradients.append(torch.autograd.grad(found.double().sum(), value)[0].double())
    assert (gradients[0] - gradients[1]).norm() / gradients[1].norm() < 5e-3


def choices() -> dict[str, bool]:
    """What is chosen where everything can be, by kernel."""
    query, key, value = sites(65, torch.float32)
    long = sites(200, torch.float32)
    wide = torch.zeros(512, 512)
    return {
        "tanh": use_sigmoid(wide, ZEN),
        "causal": use_causal_blocks(*long, 0.1, ZEN),
        "softmax": use_explicit_softmax(query, key, value, False, ZEN),
        "recurrence": is_enabled("recurrence"),
    }


def test_one_switch_serves_all_kernels() -> None:
    assert choices() == dict.fromkeys(KERNELS, True)
    with use_cpu_kernels():
        assert choices() == dict.fromkeys(KERNELS, False)
        for name in KERNELS:
            with use_cpu_kernels(name):
                assert choices() == {each: each == name for each in KERNELS}
        assert not is_enabled("tanh")
    assert choices() == dict.fromkeys(KERNELS, True)
    with pytest.raises(ValueError, match="there is no kernel sin; there are tanh, "), use_cpu_kernels("sin"):
        pass
    assert choices() == dict.fromkeys(KERNELS, True)


@pytest.mark.parametrize(("value", "count"), [(None, 4), ("1", 4), ("", 4), ("0", 0)])
def test_the_switch_of_the_environment(value: str | None, count: int) -> None:
    assert len(_read_switch(value)) == count


def test_another_value_of_the_switch_is_refused() -> None:
    with pytest.raises(ValueError, match="ZOO_CPU_KERNELS=off: write 0"):
        _read_switch("off")
