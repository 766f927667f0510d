"""A small convolutional encoder, for pictures without much in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import Sinusoidal2D
from zoo.attention.factories import make_sized
from zoo.nn.images.encoder import ImageEncoder
from zoo.nn.images.image_input import ImageInput
from zoo.types import NonNegativeInt, PositiveInt, validate_ranges


@validate_ranges
class PlainCNN(ImageEncoder):
    """Convolutions with strides and ReLU, a layer and a norm for each cell, and its position.

    What a cell sees has the middle of the cell as its own, and no cell sees more of the others than the convolutions
    with strides do. Where this was not so, the cell that told most of a thing often was one beside it.

    Args:
        height, width: Size of the pictures; zeros around them make them multiples of a cell's.
        channels: Number of channels after each convolution with a stride.
        strides: Their strides.
        around: Pixels that a convolution reads on each side of those that are its own. Default: kernels have sides of
            5, of 6 with an even stride, and of the stride if it is greater.
        dim: Width of an annotation.
        norm: "layer": the numbers of each cell are normalised, at the end; "batch": each channel, after every
            convolution, and the last one has no ReLU, so that most cells of the ground are near zero.
        position: Class or partial of what adds positions on a grid, `Sinusoidal2D` or `Learned2D`; None: cells do not
            know where they are.
    """

    def __init__(
        self,
        *,
        height: PositiveInt,
        width: PositiveInt,
        channels: Sequence[PositiveInt] = (32, 64),
        strides: Sequence[PositiveInt] = (2, 2),
        around: NonNegativeInt | None = None,
        dim: PositiveInt = 64,
        norm: Literal["layer", "batch"] = "layer",
        position: Callable[..., nn.Module] | None = Sinusoidal2D,
    ) -> None:
        if not channels or len(channels) != len(strides):
            raise ValueError(f"a number of channels for each stride, got channels={channels} and strides={strides}")
        if norm not in ("layer", "batch"):
            raise ValueError(f"norm is 'layer' or 'batch', got {norm!r}")
        step = math.prod(strides)
        super().__init__(width=dim, grid=(math.ceil(height / step), math.ceil(width / step)))
        layers: list[nn.Module] = []
        for (before, after), stride in zip(pairwise((3, *channels)), strides, strict=True):
            beside = max(0, (6 - stride) // 2) if around is None else around
            layers += self._make_layers(before, after, stride + 2 * beside, norm, stride=stride, padding=beside)
        last = self._make_layers(channels[-1], dim, 1, norm)
        self.layers = nn.Sequential(*layers, *(last[:-1] if norm == "batch" else last))
        self.norm = nn.LayerNorm(dim) if norm == "layer" else nn.Identity()
        down, across = (count * step - size for count, size in zip(self.grid, (height, width), strict=True))
        self.around = (across // 2, across - across // 2, down // 2, down - down // 2)
        sizes: dict[str, Any] = {"dim": dim, "grid": self.grid}
        self.position = None if position is None else make_sized(position, sizes)

    def annotations(self, source: ImageInput) -> Float[Tensor, "b k {self.width}"]:
        if source.pixels is None:
            raise ValueError("PlainCNN reads pixels, and these pictures are features of another encoder")
        found: Tensor = self.layers(F.pad(source.pixels, self.around))
        rows = self.norm(found.flatten(2).transpose(1, 2))
        return rows if self.position is None else self.position(rows, tuple(found.shape[-2:]))  # type: ignore[no-any-return]

    @staticmethod
    def _make_layers(before: int, after: int, side: int, norm: str, **how: Any) -> list[nn.Module]:
        normed = [nn.BatchNorm2d(after)] if norm == "batch" else []
        return [nn.Conv2d(before, after, side, bias=not normed, **how), *normed, nn.ReLU()]
