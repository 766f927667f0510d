"""The costs of gates against sums by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from zoo.attention import CBAM, EfficientChannel, SqueezeExcitation
from zoo.tasks.vision.costs import Cost, gate_costs
from zoo.tasks.vision.models.resnet import ResNet
from zoo.tasks.vision.models.torchvision_cnn import TorchvisionCNN


def convolution(inputs: int, outputs: int, kernel: int, side: int) -> int:
    return inputs * outputs * kernel**2 * side**2


def resnet8(side: int, classes: int) -> int:
    total = convolution(3, 16, 3, side) + 64 * classes
    for width, inputs in ((16, 16), (32, 16), (64, 32)):
        here = side * 16 // width
        total += convolution(inputs, width, 3, here) + convolution(width, width, 3, here)
        total += convolution(inputs, width, 1, here) if inputs != width else 0
    return total


def spatial(width: int, side: int) -> int:
    return 2 * 49 * (side * 16 // width) ** 2


MACS: dict[Any, Any] = {
    SqueezeExcitation: lambda width, side: 2 * width * (width // 16),
    EfficientChannel: lambda width, side: 3 * width,
    CBAM: lambda width, side: 4 * width * (width // 16) + spatial(width, side),
}
PARAMETERS: dict[Any, Any] = {
    SqueezeExcitation: lambda width: 2 * width * (width // 16) + width + width // 16,
    EfficientChannel: lambda width: 3,
    CBAM: lambda width: 2 * width * (width // 16) + width + width // 16 + 98,
}


@pytest.mark.parametrize("gate", MACS)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_parameters_and_products(gate: Any, device: str) -> None:
    with torch.device(device):
        net = ResNet(channels=3, height=32, width=32, classes=10, depth=8, gate=gate)
        plain = ResNet(channels=3, height=32, width=32, classes=10, depth=8)
        costs = gate_costs(net, torch.zeros(5, 3, 32, 32))
    *gates, together, whole = costs
    assert [each.name for each in gates] == [f"layer{stage}.0.gate" for stage in (1, 2, 3)]
    assert [each.parameters for each in gates] == [PARAMETERS[gate](width) for width in (16, 32, 64)]
    assert [each.macs for each in gates] == [MACS[gate](width, 32) for width in (16, 32, 64)]
    assert together == Cost("all gates", sum(g.parameters for g in gates), sum(g.macs for g in gates), None)
    assert whole.macs == resnet8(32, 10) + together.macs
    assert whole.parameters == sum(p.numel() for p in plain.parameters()) + together.parameters
    assert net.training


def test_published_costs() -> None:
    """SE-ResNet-50 adds 10% of parameters and under 0.3% of products (Hu et al. 2018, section 4)."""
    with torch.device("meta"):
        net = TorchvisionCNN(
            channels=3, height=224, width=224, classes=1000, backbone="resnet50", gate=SqueezeExcitation
        )
        *_, gates, whole = gate_costs(net, torch.zeros(1, 3, 224, 224))
    assert round((whole.macs - gates.macs) / 1e9, 2) == 4.09
    assert round(gates.parameters / (whole.parameters - gates.parameters), 3) == 0.099
    assert gates.macs / whole.macs < 0.003


class Slow(SqueezeExcitation):
    """Two thirds of a net that waits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _wait(0.02)
        return super().forward(x)


def _wait(seconds: float) -> None:
    import time

    time.sleep(seconds)


def test_time_is_that_of_the_gates() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Slow(channels=16), Slow(channels=16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            _wait(0.02)
            return self.second(self.first(x))

    *gates, together, whole = gate_costs(Net(), torch.zeros(1, 16, 2, 2), repeats=3)
    assert all(each.seconds is not None and each.seconds >= 0.02 for each in gates)
    assert 0.04 <= together.seconds <= whole.seconds - 0.02


def test_nothing_is_left_behind() -> None:
    net = ResNet(channels=3, height=16, width=16, classes=2, depth=8, gate=CBAM)
    gate_costs(net, torch.zeros(1, 3, 16, 16), repeats=1)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_in_words() -> None:
    gate, whole = Cost("layer1.0.gate", 1250, 3, 0.001), Cost("the net", 50_000, 4000, 0.004)
    said = "layer1.0.gate: 1,250 parameters (2.5%), 3 MACs (0.075%)"
    assert gate.share_of(whole) == f"{said}, 1.00 ms (25%)"
    assert dataclasses.replace(gate, seconds=None).share_of(whole) == said
