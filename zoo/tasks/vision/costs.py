"""Costs of gates: their shares of a net's parameters, multiply-accumulates (MACs) and time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from zoo.attention import CBAM, ChannelGate, EfficientChannel, SpatialGate, SqueezeExcitation

_GATES = (CBAM, ChannelGate, EfficientChannel, SpatialGate, SqueezeExcitation)


@dataclass(frozen=True)
class Cost:
    """The cost of one gate, of all gates, or of the whole net.

    Args:
        name: Qualified name of the gate, `all gates` or `the net`.
        parameters: Number of parameters.
        macs: MACs of convolutions and linear layers for one picture, as papers count them: pooling and the
            multiplication of the features are not included.
        seconds: Time of one forward pass over the batch; None if it was not measured.
    """

    name: str
    parameters: int
    macs: int
    seconds: float | None

    def share_of(self, net: Cost) -> str:
        """Returns the cost in words, with its shares of the cost of the net."""
        pairs = [("parameters", self.parameters, net.parameters), ("MACs", self.macs, net.macs)]
        parts = [f"{part:,} {what} ({100 * part / total:.2g}%)" for what, part, total in pairs]
        if self.seconds is not None and net.seconds:
            parts.append(f"{1000 * self.seconds:.2f} ms ({100 * self.seconds / net.seconds:.2g}%)")
        return f"{self.name}: {', '.join(parts)}"


def gate_costs(net: nn.Module, pixels: Float[Tensor, "b c h w"], *, repeats: int = 0) -> list[Cost]:
    """Measures the cost of each gate, of all gates and of the net.

    Args:
        net: The net, on the device of the pixels, which may be `meta` if no time is measured. It is not changed.
        pixels: A batch of pictures.
        repeats: Number of timed forward passes, of which the median is taken; 0 measures no time. Gates and net are
            timed in the same passes.

    Returns:
        One cost for each gate, then those of `all gates` and `the net`; an empty list for a net without gates.
    """
    gates = _outermost_gates(net)
    if not gates:
        return []
    was_training = net.training
    net.eval()
    try:
        with torch.no_grad():
            macs = _macs(net, gates, pixels[:1])
            seconds = _seconds(net, gates, pixels, repeats) if repeats else [None] * len(macs)
    finally:
        net.train(was_training)
    parameters = [_parameters(gate) for gate in gates.values()]
    parameters += [sum(parameters), _parameters(net)]
    names = [*gates, "all gates", "the net"]
    return [Cost(*each) for each in zip(names, parameters, macs, seconds, strict=True)]


def _outermost_gates(net: nn.Module) -> dict[str, nn.Module]:
    """Returns the gates that are not part of another gate, by name."""
    found: dict[str, nn.Module] = {}
    for name, module in net.named_modules():
        if isinstance(module, _GATES) and not any(name.startswith(f"{outer}.") for outer in found):
            found[name] = module
    return found


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _macs(net: nn.Module, gates: dict[str, nn.Module], picture: Float[Tensor, "1 c h w"]) -> list[int]:
    with FlopCounterMode(display=False) as counter, _measure_gates(gates, counter.get_total_flops) as spent:
        net(picture)
    flops = [spent.get(name, 0) for name in gates]
    return [each // 2 for each in (*flops, sum(flops), counter.get_total_flops())]


def _seconds(net: nn.Module, gates: dict[str, nn.Module], pixels: Tensor, repeats: int) -> list[float | None]:
    def now() -> float:
        if pixels.is_cuda:
            torch.cuda.synchronize(pixels.device)
        return time.perf_counter()

    passes: list[list[float]] = []
    for _ in range(repeats + 1):
        with _measure_gates(gates, now) as spent:
            start = now()
            net(pixels)
            total = now() - start
        passes.append([*(spent[name] for name in gates), sum(spent.values()), total])
    return [statistics.median(each) for each in zip(*passes[1:], strict=True)]  # the first pass warms up


@contextmanager
def _measure_gates(gates: dict[str, nn.Module], read: Callable[[], Any]) -> Iterator[dict[str, Any]]:
    """Yields gate -> the difference of `read()` after and before the gate, summed over its calls."""
    spent: dict[str, Any] = {}
    started: dict[str, Any] = {}

    def start(name: str) -> None:
        started[name] = read()

    def stop(name: str) -> None:
        spent[name] = spent.get(name, 0) + read() - started[name]

    hooks = []
    for name, gate in gates.items():
        hooks.append(gate.register_forward_pre_hook(lambda _, __, name=name: start(name)))
        hooks.append(gate.register_forward_hook(lambda _, __, ___, name=name: stop(name)))
    try:
        yield spent
    finally:
        for hook in hooks:
            hook.remove()
