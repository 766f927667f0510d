"""Gates against their formulas, number by number, and what they share with other sites: the Tap."""

from __future__ import annotations

import math
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from zoo.attention import (
    CBAM,
    ChannelGate,
    EfficientChannel,
    SpatialGate,
    SqueezeExcitation,
    efficient_kernel,
    record,
    sites,
)

GATES: dict[str, Any] = {
    "se": lambda c: SqueezeExcitation(channels=c, reduction=2),
    "eca": lambda c: EfficientChannel(channels=c),
    "channel": lambda c: ChannelGate(channels=c, reduction=2),
    "channel, max": lambda c: ChannelGate(channels=c, reduction=2, pooling="max"),
    "channel, avg": lambda c: ChannelGate(channels=c, reduction=2, pooling="avg"),
    "spatial": lambda c: SpatialGate(kernel=3),
    "spatial, max": lambda c: SpatialGate(kernel=3, pooling="max"),
    "spatial, avg": lambda c: SpatialGate(kernel=5, pooling="avg"),
    "cbam": lambda c: CBAM(channels=c, reduction=2, kernel=3),
    "cbam, spatial first": lambda c: CBAM(channels=c, reduction=2, kernel=3, first="spatial", pooling="avg"),
}
SIZES = [(2, 4, 3, 5), (1, 4, 1, 1), (3, 1, 2, 2), (2, 5, 1, 4)]


def made(name: str, channels: int, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(3)
    gate: nn.Module = GATES[name](channels).to(dtype)
    return gate


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


def mlp(gate: Any, z: list[Tensor]) -> list[Tensor]:
    """W2 relu(W1 z + b1) + b2, one number after the other."""
    hidden = []
    for row, bias in zip(gate.squeeze.weight, gate.squeeze.bias, strict=True):
        hidden.append((sum(w * each for w, each in zip(row, z, strict=True)) + bias).clamp(min=0))
    return [
        sum(w * each for w, each in zip(row, hidden, strict=True)) + bias
        for row, bias in zip(gate.excite.weight, gate.excite.bias, strict=True)
    ]


def mean(numbers: list[Tensor]) -> Tensor:
    return sum(numbers) / len(numbers)  # type: ignore[return-value]


def highest(numbers: list[Tensor]) -> Tensor:
    return torch.stack(numbers).max()


POOLS = {"avg": [mean], "max": [highest], "both": [mean, highest]}


def channel_gates(name: str, gate: Any, image: Tensor) -> list[Tensor]:
    """Computes the gates of one image (c,h,w)."""
    cells = [[channel[y, x] for y in range(image.shape[1]) for x in range(image.shape[2])] for channel in image]
    if name == "se":
        return [sigmoid(s) for s in mlp(gate, [mean(each) for each in cells])]
    if name == "eca":
        z, taps = [mean(each) for each in cells], gate.conv.weight.flatten()
        reach = len(taps) // 2
        near = [[(i + t - reach, w) for t, w in enumerate(taps)] for i in range(len(z))]
        return [sigmoid(sum(w * z[j] for j, w in each if 0 <= j < len(z))) for each in near]  # type: ignore[arg-type]
    pooled = [mlp(gate, [pool(each) for each in cells]) for pool in POOLS[pooling_of(name)]]
    return [sigmoid(sum(each)) for each in zip(*pooled, strict=True)]  # type: ignore[arg-type]


def spatial_gates(name: str, gate: Any, image: Tensor) -> list[list[Tensor]]:
    _, height, width = image.shape
    reach = gate.conv.weight.shape[-1] // 2
    found = []
    for y in range(height):
        found.append([])
        for x in range(width):
            total = torch.zeros((), dtype=image.dtype)
            for m, pool in enumerate(POOLS[pooling_of(name)]):
                for dy in range(-reach, reach + 1):
                    for dx in range(-reach, reach + 1):
                        if 0 <= y + dy < height and 0 <= x + dx < width:
                            place = pool(list(image[:, y + dy, x + dx]))
                            total = total + gate.conv.weight[0, m, dy + reach, dx + reach] * place
            found[-1].append(sigmoid(total))
    return found


def pooling_of(name: str) -> str:
    return next((each for each in ("max", "avg") if each in name), "both")


def reference(name: str, gate: Any, x: Tensor) -> Tensor:
    if name == "cbam":
        return reference("spatial", gate.spatial, reference("channel", gate.channel, x))
    if name == "cbam, spatial first":
        return reference("channel, avg", gate.channel, reference("spatial, avg", gate.spatial, x))
    images = []
    for image in x:
        if name.startswith("spatial"):
            gates = torch.stack([torch.stack(row) for row in spatial_gates(name, gate, image)])
            images.append(image * gates)
        else:
            images.append(torch.stack([c * g for c, g in zip(image, channel_gates(name, gate, image), strict=True)]))
    return torch.stack(images)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("size", SIZES)
def test_against_loops(name: str, size: tuple[int, ...]) -> None:
    gate = made(name, size[1])
    x = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    leaves = [x, *gate.parameters()]
    found, expected = gate(x), reference(name, gate, x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    for one, other in zip(
        torch.autograd.grad(found.square().sum(), leaves),
        torch.autograd.grad(expected.square().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
    single = made(name, size[1], torch.float32)
    torch.testing.assert_close(single(x.float()).double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", GATES)
def test_a_tap_shows_the_gates_and_changes_nothing(name: str) -> None:
    gate, x = made(name, 4), torch.randn(2, 4, 3, 5, dtype=torch.float64, requires_grad=True)
    plain = gate(x)
    with record(gate) as maps:
        observed = gate(x)
    assert torch.equal(plain, observed)
    expected = {"cbam": {"channel", "spatial"}, "cbam, spatial first": {"channel", "spatial"}}.get(name, {""})
    assert set(maps) == set(sites(gate)) == expected
    product = torch.ones((), dtype=torch.float64)
    for each in maps.values():
        assert each.support is None
        assert not each.weights.requires_grad
        if each.axes == ("batch", "channel"):
            assert each.weights.shape == (2, 4)
            product = product * each.weights[:, :, None, None]
        else:
            assert each.axes == ("batch", "height", "width")
            assert each.weights.shape == (2, 3, 5)
            product = product * each.weights.unsqueeze(1)
    torch.testing.assert_close(x * product, plain)
    with record(gate, grad=True) as maps:
        gate(x)
    assert all(each.weights.requires_grad for each in maps.values())


@pytest.mark.parametrize("name", GATES)
def test_the_layout_in_memory_is_kept(name: str) -> None:
    gate = made(name, 4, torch.float32).to(memory_format=torch.channels_last)
    x = torch.randn(2, 4, 3, 5).to(memory_format=torch.channels_last)
    found = gate(x)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, gate(x.contiguous()))


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.03), (torch.float16, 0.004)])
def test_half_precision(name: str, dtype: torch.dtype, tolerance: float) -> None:
    """A mean of many large numbers is not added up in half precision, where it would be inf."""
    x = torch.randn(1, 4, 40, 40)
    exact = made(name, 4, torch.float32)
    found = made(name, 4, dtype)(x.to(dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), exact(x), rtol=tolerance, atol=tolerance)
    assert made(name, 4, dtype)((x + 60.0).to(dtype)).isfinite().all()
    with torch.autocast("cpu", dtype):
        assert exact(x + 60.0).isfinite().all()


@pytest.mark.parametrize(
    ("channels", "kernel"), [(1, 1), (2, 1), (8, 3), (16, 3), (64, 3), (128, 5), (256, 5), (512, 5), (2048, 7)]
)
def test_the_kernel_of_efficient_channel_attention(channels: int, kernel: int) -> None:
    """C = 64, 128 and 256 have 3, 5 and 5 in the paper's figure of its code; |log2(C)/2 + 1/2|, made odd."""
    t = math.floor(math.log2(channels) / 2 + 0.5)
    assert efficient_kernel(channels) == kernel == (t if t % 2 else t + 1)
    assert EfficientChannel(channels=channels).conv.weight.shape == (1, 1, kernel)


def test_a_reduction_beyond_the_channels_leaves_one() -> None:
    for gate in (SqueezeExcitation(channels=3, reduction=16), ChannelGate(channels=3)):
        assert gate.squeeze.weight.shape == (1, 3)
        assert gate(torch.randn(2, 3, 4, 4)).shape == (2, 3, 4, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SqueezeExcitation(channels=0), "channels is to be a whole number of at least 1"),
        (lambda: ChannelGate(channels=4, reduction=0), "reduction is to be a whole number of at least 1"),
        (lambda: ChannelGate(channels=4, pooling="mean"), "'avg', 'max' or 'both', not 'mean'"),
        (lambda: EfficientChannel(channels=0), "channels is to be a whole number of at least 1"),
        (lambda: EfficientChannel(channels=4, kernel=2), "odd number, so that it has a middle, got 2"),
        (lambda: SpatialGate(kernel=4), "odd number, so that it has a middle, got 4"),
        (lambda: SpatialGate(pooling="sum"), "not 'sum'"),
        (lambda: CBAM(channels=4, first="both"), "first is 'channel' or 'spatial', not 'both'"),
    ],
)
def test_bad_options_are_refused(make: Any, message: str) -> None:
    jaxtyping.config.update("jaxtyping_disable", True)  # whose check of types comes first
    try:
        with pytest.raises(ValueError, match=message):
            make()
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_equal_to_timm() -> None:
    timm = pytest.importorskip("timm.layers")
    x, gate, peer = torch.randn(2, 8, 4, 4), SqueezeExcitation(channels=8, reduction=2), timm.SEModule(8, rd_channels=4)
    with torch.no_grad():
        for ours, theirs in ((gate.squeeze, peer.fc1), (gate.excite, peer.fc2)):
            theirs.weight.copy_(ours.weight[..., None, None])
            theirs.bias.copy_(ours.bias)
    torch.testing.assert_close(gate(x), peer(x))
    eca, other = EfficientChannel(channels=8), timm.EcaModule(8)
    with torch.no_grad():
        other.conv.weight.copy_(eca.conv.weight)
    torch.testing.assert_close(eca(x), other(x))


@pytest.mark.parametrize("name", ["channel", "channel, max", "spatial", "spatial, max", "cbam"])
def test_equal_highest_numbers_share_the_gradient(name: str) -> None:
    """As torch's amax has it: a ReLU leaves many zeros."""
    gate = made(name, 4)
    x = torch.randint(0, 2, (2, 4, 3, 5), generator=torch.Generator().manual_seed(1)).double().requires_grad_()
    for one, other in zip(
        torch.autograd.grad(gate(x).square().sum(), [x, *gate.parameters()]),
        torch.autograd.grad(written_out(name, gate, x).square().sum(), [x, *gate.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def written_out(name: str, gate: Any, x: Tensor) -> Tensor:
    """With torch's own mean and amax."""
    if name == "cbam":
        return written_out("spatial", gate.spatial, written_out("channel", gate.channel, x))
    wanted = {"avg": [Tensor.mean], "max": [Tensor.amax], "both": [Tensor.mean, Tensor.amax]}[pooling_of(name)]
    if name.startswith("spatial"):
        return x * gate.conv(torch.stack([pool(x, 1) for pool in wanted], 1)).sigmoid()
    pooled = [gate.excite(gate.squeeze(pool(x, (2, 3))).relu()) for pool in wanted]
    return x * sum(pooled).sigmoid()[:, :, None, None]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", GATES)
def test_second_gradients(name: str) -> None:
    gate = made(name, 3)
    x = torch.randn(1, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradgradcheck(gate, (x,))
