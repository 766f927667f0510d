"""An encoder of a net that was trained to name what is in a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention.factories import make_sized
from zoo.errors import did_you_mean
from zoo.nn.images.classifier import ImageClassifierNet
from zoo.nn.images.encoder import ImageEncoder
from zoo.nn.images.image_input import ImageInput
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class BackboneEncoder(ImageEncoder):
    """The last feature map of a classifier, frozen or trained from a given stage on; a layer of its own behind it.

    Args:
        height, width: Size of the pictures.
        backbone: `(channels, height, width, classes) -> ImageClassifierNet`, such as `TorchvisionCNN` or
            `EfficientNetLite`, or a partial of it. Its last layer is not used.
        tuned_from: The first of its `layer_groups` that is trained; None: it is frozen, and pictures may be given as
            the features that it made of them.
        dim: Width to which features are projected; None: they are annotations as they are.
        position: Class or partial of what adds positions on a grid; None: nothing.
    """

    def __init__(
        self,
        *,
        height: PositiveInt,
        width: PositiveInt,
        backbone: Callable[..., ImageClassifierNet],
        tuned_from: str | None = None,
        dim: PositiveInt | None = None,
        position: Callable[..., nn.Module] | None = None,
    ) -> None:
        made = backbone(channels=3, height=height, width=width, classes=1)
        features, rows, columns = _shape_of_features(backbone, height, width)
        super().__init__(width=features if dim is None else dim, grid=(rows, columns))
        stages = [name for name in made.layer_groups() if name != "head"]
        if tuned_from is not None and tuned_from not in stages:
            raise ValueError(
                f"tuned_from={tuned_from!r} is no stage of this backbone. {did_you_mean(tuned_from, stages)}"
            )
        self.backbone = made
        self.is_frozen = tuned_from is None
        tuned = [] if tuned_from is None else stages[stages.index(tuned_from) :]
        for name, parameter in made.named_parameters():
            parameter.requires_grad_(any(name.startswith(f"{stage}.") for stage in tuned))
            if name.startswith("head."):  # which is not used
                nn.init.zeros_(parameter)
        self.project: nn.Module = nn.Identity() if dim is None else nn.Linear(features, dim)
        sizes: dict[str, Any] = {"dim": self.width, "grid": self.grid}
        self.position = None if position is None else make_sized(position, sizes)

    def train(self, mode: bool = True) -> Self:
        """Sets the mode, except that a frozen backbone computes as in evaluation."""
        super().train(mode)
        if self.is_frozen:
            self.backbone.eval()
        return self

    def annotations(self, source: ImageInput) -> Float[Tensor, "b k {self.width}"]:
        rows: Tensor = self.project(self.features(source))
        return rows if self.position is None else self.position(rows, self.grid)

    def features(self, source: ImageInput) -> Float[Tensor, "b k d"]:
        """Returns the features of the cells, computed or as they were given."""
        if source.features is not None:
            if not self.is_frozen:
                raise ValueError("a backbone that is trained reads pixels, and these pictures are features")
            return source.features
        assert source.pixels is not None
        with torch.no_grad() if self.is_frozen else nullcontext():
            found = self.backbone.features(source.pixels)
        return found.flatten(2).transpose(1, 2)

    def load_published(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns published weights of the backbone under the names of this encoder."""
        return {f"backbone.{name}": weight for name, weight in weights.items() if not name.startswith("head.")}


def _shape_of_features(backbone: Callable[..., ImageClassifierNet], height: int, width: int) -> tuple[int, int, int]:
    """Returns the features of a cell, and the rows and columns of the grid, at the cost of no picture of that size."""
    with torch.device("meta"), torch.no_grad():
        net = backbone(channels=3, height=height, width=width, classes=1).eval()
        _, features, rows, columns = net.features(torch.zeros(1, 3, height, width)).shape
    return features, rows, columns
