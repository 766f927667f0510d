"""Interfaces of nets that classify pictures, for `ImageClassifier` and its maps."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.nn.images.windows import Windows


class ImageClassifierNet(nn.Module, ABC):
    """A classifier of pictures: pixels (b,c,h,w) to logits (b,classes).

    Attributes:
        head: The last layer, with one row for each class.
        averages: True if the logits are `head` of the mean of `features` over all cells.
        last_map: Name of the module whose output is `features`, in a convolutional net; None in others.
    """

    head: nn.Linear
    averages: bool = True
    last_map: str | None = None

    @abstractmethod
    def features(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d rows columns"]:
        """Computes the last feature map, on a grid of cells."""

    @abstractmethod
    def layer_groups(self) -> list[str]:
        """Returns prefixes of parameter names, from the input to the output."""

    def resize_parameter(self, name: str, old: Float[Tensor, "..."], shape: torch.Size) -> Float[Tensor, "..."] | None:
        """Resizes a parameter that depends on the resolution; returns None for any other parameter."""
        return None


class GridNet(ImageClassifierNet):
    """A net that divides a picture into a grid of cells, with a token for each."""

    @abstractmethod
    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Returns the numbers of rows and columns of cells."""

    def windows(self, layer: int, height: int, width: int) -> Windows | None:
        """Returns the windows of a layer, or None if every token attends to every other."""
        return None


class TokenNet(GridNet):
    """A net with the same tokens in all layers, which attend to each other in each layer.

    Attributes:
        extra: Number of tokens before those of the cells (class token, registers).
        class_site: Site of the last layer, if the head reads its first token, else None.
        pool_site: Site that pools the tokens for the head, or None.
    """

    extra: int = 0
    class_site: str | None = None
    pool_site: str | None = None
