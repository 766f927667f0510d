"""Residual networks (He et al. 2016) for CIFAR and ImageNet, with an optional gate in every residual branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from zoo.nn.images.classifier import ImageClassifierNet
from zoo.types import PositiveInt, Probability, validate_ranges

Form = Literal["cifar", "imagenet"]
Stem = Literal["small", "large"]
Shortcut = Literal["projection", "padding"]

_IMAGENET: dict[int, tuple[bool, tuple[int, ...]]] = {
    18: (False, (2, 2, 2, 2)),
    34: (False, (3, 4, 6, 3)),
    50: (True, (3, 4, 6, 3)),
    101: (True, (3, 4, 23, 3)),
    152: (True, (3, 8, 36, 3)),
}
"""He et al. 2016, table 1: depth -> whether blocks are bottlenecks, and the number of blocks in each stage."""


@validate_ranges
class ResNet(ImageClassifierNet):
    """A stem, stages of residual blocks, the mean over the picture and a linear layer.

    The form `cifar` is section 4.2 of the paper: three stages of n blocks, 6n + 2 layers. The form `imagenet` is table
    1 with the stride in the 3x3 convolution, as in torchvision. Its parameters have torchvision's names, except `head`.

    Args:
        channels: Number of channels of the pictures.
        height, width: Size of the pictures; it does not change the net.
        classes: Number of classes.
        size: Name of a depth, such as `resnet20`.
        depth: Number of layers. Default: that of `size`.
        form: Default: `imagenet` for the depths 18, 34, 50, 101 and 152, otherwise `cifar`.
        dim: Width of the first stage, which doubles with each stage. Default: 16 for `cifar`, 64 for `imagenet`.
        gate: `(channels) -> Module`, at the end of each residual branch (Hu et al. 2018, fig. 3; Woo et al. 2018,
            fig. 3).
        stem: `small`, a 3x3 convolution, or `large`, ImageNet's 7x7 convolution and pooling, which divide each side by
            4. Default: that of the form.
        shortcut: Shortcut of blocks that change the shape: `projection`, a 1x1 convolution (option B), or `padding`,
            every second pixel and channels of zeros (option A), which has no parameters; the paper's CIFAR networks
            use it.
        zero_init: If True, the last normalisation of each branch starts with weight zero, so that the block starts as
            its shortcut.
        stochastic_depth: Probability that training drops the last residual branch; it grows linearly over the blocks
            (Huang et al. 2016, eq. 4).
    """

    SIZES: ClassVar[dict[str, int]] = {f"resnet{depth}": depth for depth in (14, 20, 32, 44, 56, 110, *_IMAGENET)}

    def __init__(
        self,
        *,
        channels: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        classes: PositiveInt,
        size: str | None = "resnet20",
        depth: PositiveInt | None = None,
        form: Form | None = None,
        dim: PositiveInt | None = None,
        gate: Callable[..., nn.Module] = nn.Identity,
        stem: Stem | None = None,
        shortcut: Shortcut = "projection",
        zero_init: bool = False,
        stochastic_depth: Probability = 0.0,
    ) -> None:
        super().__init__()
        depth = self._depth(size) if depth is None else depth
        form = form or ("imagenet" if depth in _IMAGENET else "cifar")
        is_bottleneck, counts = _layout(depth, form)
        block = Bottleneck if is_bottleneck else Basic
        dim = {"cifar": 16, "imagenet": 64}[form] if dim is None else dim
        if (stem or "small") not in ("small", "large"):
            raise ValueError(f"stem is 'small' or 'large', not {stem!r}")
        if shortcut not in ("projection", "padding"):
            raise ValueError(f"shortcut is 'projection' or 'padding', not {shortcut!r}")

        if (stem or {"cifar": "small", "imagenet": "large"}[form]) == "small":
            self.conv1, self.bn1 = _convolution(channels, dim, 3)
            self.pool: nn.Module = nn.Identity()
        else:
            self.conv1, self.bn1 = _convolution(channels, dim, 7, 2)
            self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self._stages: list[str] = []
        inputs = dim
        drops = iter(stochastic_depth * (number + 1) / sum(counts) for number in range(sum(counts)))
        for stage, count in enumerate(counts):
            blocks = nn.Sequential()
            for number in range(count):
                stride = 2 if stage and number == 0 else 1
                options: dict[str, Any] = {
                    "gate": gate,
                    "shortcut": shortcut,
                    "zero_init": zero_init,
                    "drop": next(drops),
                }
                blocks.append(block(inputs, dim * 2**stage, stride=stride, **options))
                inputs = dim * 2**stage * block.expansion
            self._stages.append(f"layer{stage + 1}")
            self.add_module(self._stages[-1], blocks)
        self.last_map = self._stages[-1]
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        logits: Tensor = self.head(self.features(x).mean((2, 3)))
        return logits

    def features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d rows columns"]:
        """Computes the last map; the logits are `head` of its mean over the cells."""
        x = self.pool(self.bn1(self.conv1(x)).relu_())
        for stage in self._stages:
            x = self.get_submodule(stage)(x)
        return x

    def layer_groups(self) -> list[str]:
        """See `ImageClassifierNet`. The prefix `conv1` also stands for `bn1`."""
        return ["conv1", *self._stages, "head"]

    def _depth(self, size: str | None) -> int:
        if size not in self.SIZES:
            raise ValueError(f"size={size!r}: there is {', '.join(self.SIZES)}; write another one as depth")
        return self.SIZES[size]


@validate_ranges
class Basic(nn.Module):
    """relu(shortcut(x) + gate(bn(conv3x3(relu(bn(conv3x3(x))))))) (He et al. 2016, fig. 5, left)."""

    expansion: ClassVar[int] = 1

    def __init__(
        self,
        inputs: int,
        width: PositiveInt,
        *,
        stride: int,
        gate: Callable[..., nn.Module],
        shortcut: Shortcut,
        zero_init: bool,
        drop: float,
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(inputs, width, 3, stride)
        self.conv2, self.bn2 = _convolution(width, width, 3)
        self.gate = gate(channels=width)
        self.drop = StochasticDepth(drop, "row")
        self.downsample = _shortcut(inputs, width, stride, shortcut)
        if zero_init:
            nn.init.zeros_(self.bn2.weight)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d rows columns"]:
        branch = self.bn1(self.conv1(x)).relu_()
        branch = self.gate(self.bn2(self.conv2(branch)))
        out: Tensor = self.drop(branch).add_(self.downsample(x)).relu_()
        return out


@validate_ranges
class Bottleneck(nn.Module):
    """relu(shortcut(x) + gate(branch)), with 1x1, 3x3 and 1x1 convolutions as branch (He et al. 2016, fig. 5)."""

    expansion: ClassVar[int] = 4

    def __init__(
        self,
        inputs: int,
        width: PositiveInt,
        *,
        stride: int,
        gate: Callable[..., nn.Module],
        shortcut: Shortcut,
        zero_init: bool,
        drop: float,
    ) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.bn1 = _convolution(inputs, width, 1)
        self.conv2, self.bn2 = _convolution(width, width, 3, stride)
        self.conv3, self.bn3 = _convolution(width, outputs, 1)
        self.gate = gate(channels=outputs)
        self.drop = StochasticDepth(drop, "row")
        self.downsample = _shortcut(inputs, outputs, stride, shortcut)
        if zero_init:
            nn.init.zeros_(self.bn3.weight)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d rows columns"]:
        branch = self.bn1(self.conv1(x)).relu_()
        branch = self.bn2(self.conv2(branch)).relu_()
        branch = self.gate(self.bn3(self.conv3(branch)))
        out: Tensor = self.drop(branch).add_(self.downsample(x)).relu_()
        return out


@validate_ranges
class Padding(nn.Module):
    """Takes every `stride`-th pixel and appends channels of zeros (He et al. 2016, section 3.3, option A)."""

    def __init__(self, *, channels: PositiveInt, stride: int) -> None:
        super().__init__()
        self.channels = channels
        self.stride = stride

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d rows columns"]:
        missing = self.channels - x.shape[1]
        return nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, missing))


def _layout(depth: int, form: str) -> tuple[bool, tuple[int, ...]]:
    """Returns whether blocks are bottlenecks, and the number of blocks in each stage."""
    if form == "imagenet":
        if depth not in _IMAGENET:
            raise ValueError(f"depth={depth}: in ImageNet's form a net has {', '.join(map(str, _IMAGENET))} layers")
        return _IMAGENET[depth]
    if form != "cifar":
        raise ValueError(f"form is 'cifar' or 'imagenet', not {form!r}")
    if depth < 8 or depth % 6 != 2:
        raise ValueError(f"depth={depth}: in CIFAR's form a net has 6n + 2 layers, as 20, 32, 44, 56 and 110")
    return False, ((depth - 2) // 6,) * 3


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """Returns a convolution, initialised as in He et al. 2015, and its batch norm."""
    convolution = nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution, nn.BatchNorm2d(outputs)


def _shortcut(inputs: int, outputs: int, stride: int, kind: str) -> nn.Module:
    if inputs == outputs and stride == 1:
        return nn.Identity()
    if kind == "padding":
        return Padding(channels=outputs, stride=stride)
    return nn.Sequential(*_convolution(inputs, outputs, 1, stride))
