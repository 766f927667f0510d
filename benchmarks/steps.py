"""Steps of training, and whether two sides compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Any, Any], Tensor]
"""The loss of a net on a batch."""


def training(loss: Loss, net: nn.Module, batch: Any) -> Callable[[], None]:
    """Returns a step: forward, loss, backward and PyTorch's fused Adam."""
    optimizer = torch.optim.Adam([each for each in net.parameters() if each.requires_grad], fused=True)

    def run() -> None:
        net.train()
        optimizer.zero_grad()
        loss(net, batch).backward()
        optimizer.step()

    return run


def difference(net: nn.Module, batch: Any, losses: Mapping[str, Loss], most: float) -> float:
    """Returns by how much losses and gradients of a net differ; refuses sides that do not compute the same.

    Args:
        net: A net without dropout.
        batch: What it reads.
        losses: The two sides.
        most: The largest difference that rounding explains.
    """
    found = []
    for loss in losses.values():
        net.zero_grad()
        value = loss(net, batch)
        value.backward()
        found.append([value.detach(), *(each.grad.clone() for each in net.parameters() if each.grad is not None)])
    largest = max((one - other).abs().max().item() for one, other in zip(*found, strict=True))
    if not largest <= most:
        raise SystemExit(f"{', '.join(losses)} do not compute the same: losses or gradients differ by {largest:.1e}")
    return largest
