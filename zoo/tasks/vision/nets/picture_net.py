"""Interfaces of the nets that classify pictures, as `ImageClassifier` and its maps use them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.tasks.vision.nets.windows import Windows


class PictureNet(nn.Module, ABC):
    """A classifier of pictures: pixels (b,c,h,w) to logits (b,classes).

    Attributes:
        head: The last layer, with a row for each class.
        averages: Whether logits are `head` of the mean of `features` over all cells.
        last_map: The module whose output `features` is, in a convolutional net; None in others.
    """

    head: nn.Linear
    averages: bool = True
    last_map: str | None = None

    @abstractmethod
    def features(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d rows columns"]:
        """The last map of features, on a grid of cells."""

    @abstractmethod
    def stages(self) -> list[str]:
        """Prefixes of parameter names, from the input to the output."""

    def resized(self, name: str, old: Float[Tensor, "..."], shape: torch.Size) -> Float[Tensor, "..."] | None:
        """A parameter that depends on the resolution, brought to another one; None for any other parameter."""
        return None


class GridNet(PictureNet):
    """A net that cuts a picture into a grid of cells, with a token for each."""

    @abstractmethod
    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of cells of a picture."""

    def windows(self, layer: int, height: int, width: int) -> Windows | None:
        """How a layer cuts the map of a picture into windows; None where every token attends to every other."""
        return None


class TokenNet(GridNet):
    """A net whose tokens stay in place from layer to layer, and attend to each other in each.

    Attributes:
        extra: Tokens that stand in front of the cells' and belong to none.
        class_site: The site of the last layer, where the first token is what the head reads.
        pool_site: The site that pools the tokens for the head.
    """

    extra: int = 0
    class_site: str | None = None
    pool_site: str | None = None
