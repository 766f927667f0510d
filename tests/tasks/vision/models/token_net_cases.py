"""Small nets of tokens, and helpers of their tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn

from zoo.attention import AttentionFactory, ScaledDot, Softmax
from zoo.config import plugins
from zoo.tasks.vision.models.cct import CCT
from zoo.tasks.vision.models.vit import ViT

SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)
Net = TypeVar("Net", bound=nn.Module)
CLOSE = {"rtol": 0.0, "atol": 1e-12}
MIXERS = ("convolution", "fourier", "recurrent", "state_space")
ATTENTION = list(plugins.find_choices("attention").values())


def vit(**options: Any) -> ViT:
    """Two blocks over 3 x 2 patches in float64, without parameters that are 1 or 0."""
    torch.manual_seed(0)
    sizes = {"height": 12, "width": 8, "patch": 4, "dim": 12, "layers": 2, "heads": 3, "hidden": 10, "attend": SOFTMAX}
    return spread(ViT(**{"channels": 2, "classes": 5, **sizes, **options}).double())


def cct(**options: Any) -> CCT:
    """Two blocks over 4 x 3 tokens in float64."""
    torch.manual_seed(0)
    sizes = {"height": 16, "width": 12, "dim": 12, "layers": 2, "heads": 3, "hidden": 10, "attend": SOFTMAX}
    return spread(CCT(**{"channels": 2, "classes": 5, "kernel": 3, "convolutions": 2, **sizes, **options}).double())


def spread(net: Net) -> Net:
    """Moves norms and biases away from 1 and 0, which hide errors; in evaluation mode."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64), alpha=0.2)
    return net.eval()


def pictures(height: int, width: int, *, count: int = 3, channels: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(count, channels, height, width, generator=generator, dtype=torch.float64)


def mechanism(path: Path) -> Any:
    """The factory that a file of conf/attention describes."""
    return instantiate(OmegaConf.load(path), _convert_="all")


def parameters(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())
