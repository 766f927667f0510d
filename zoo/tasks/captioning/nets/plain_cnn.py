"""A small convolutional encoder, for pictures without much in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import Sinusoidal2D
from zoo.attention.factories import sized
from zoo.attention.ranges import Count
from zoo.tasks.captioning.batch import Seen
from zoo.tasks.captioning.nets.picture_encoder import PictureEncoder


class PlainCNN(PictureEncoder):
    """Convolutions with strides and ReLU, a layer and a norm for each cell, and its position.

    No cell sees more of the others than the convolutions with strides do: where cells saw far, weights often lay on the
    cell beside the one that a word speaks of.

    Args:
        height, width: Size of the pictures.
        channels: Number of channels after each convolution with a stride.
        strides: Their strides; kernels have 5 x 5 pixels.
        dim: Width of an annotation.
        position: Class or partial of what adds positions on a grid, `Sinusoidal2D` or `Learned2D`; None: cells do not
            know where they are.
    """

    def __init__(
        self,
        *,
        height: Count,
        width: Count,
        channels: Sequence[Count] = (32, 64),
        strides: Sequence[Count] = (2, 3),
        dim: Count = 64,
        position: Callable[..., nn.Module] | None = Sinusoidal2D,
    ) -> None:
        if not channels or len(channels) != len(strides):
            raise ValueError(f"a number of channels for each stride, got channels={channels} and strides={strides}")
        step = math.prod(strides)
        super().__init__(width=dim, grid=(math.ceil(height / step), math.ceil(width / step)))
        layers: list[nn.Module] = []
        for (before, after), stride in zip(pairwise((3, *channels)), strides, strict=True):
            layers += [nn.Conv2d(before, after, 5, stride, padding=2), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels[-1], dim, 1), nn.ReLU())
        self.norm = nn.LayerNorm(dim)
        sizes: dict[str, Any] = {"dim": dim, "grid": self.grid}
        self.position = None if position is None else sized(position, sizes)

    def annotations(self, source: Seen) -> Float[Tensor, "b k {self.width}"]:
        if source.pixels is None:
            raise ValueError("PlainCNN reads pixels, and these pictures are features of another encoder")
        found: Tensor = self.layers(source.pixels)
        rows = self.norm(found.flatten(2).transpose(1, 2))
        return rows if self.position is None else self.position(rows, tuple(found.shape[-2:]))  # type: ignore[no-any-return]
