"""What the nets, the module and the maps see of pictures: a batch of one size, normalised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from zoo.errors import DataError
from zoo.tasks.batches import moved


@dataclass(frozen=True, eq=False)
class Picture:
    """One example, before it is in a batch.

    Args:
        pixels: Of any size, as the file has them.
        label: Number of the class; -1 where it is not known.
        id: The path of the file, or a name of the example.
        split: train, val or test; "" where it is in none.
        gold: Pixels where attention belongs, where that is known.
    """

    pixels: UInt8[Tensor, "c h w"]
    label: int
    id: str
    split: str
    gold: Bool[Tensor, "h w"] | None = None


@dataclass(frozen=True, eq=False)
class Images:
    """A batch.

    Args:
        pixels: Normalised.
        labels: Numbers of the classes; -1 where not known.
        ids: The path of each picture, or a name of the example.
        splits: train, val or test; "" where it is in none.
        label_names: Of the classes, in order.
        gold: Pixels where attention belongs, where that is known of all.
    """

    pixels: Float[Tensor, "b c h w"]
    labels: Int[Tensor, " b"]
    ids: tuple[str, ...]
    splits: tuple[str, ...]
    label_names: tuple[str, ...]
    gold: Bool[Tensor, "b h w"] | None = None

    def with_pixels(self, pixels: Float[Tensor, "b c h w"]) -> Images:
        """The same examples with other pixels."""
        return replace(self, pixels=pixels)

    def to(self, device: torch.device | str) -> Images:
        return moved(self, device)


def collate(
    pictures: Sequence[Picture], *, mean: Sequence[float], std: Sequence[float], label_names: Sequence[str]
) -> Images:
    """A batch of pictures of one size, normalised all at once.

    Args:
        pictures: At least one.
        mean: Of each channel, of pixels between 0 and 1.
        std: Of each channel, likewise.
        label_names: Of the classes, in order.
    """
    shape = pictures[0].pixels.shape
    for picture in pictures:
        if picture.pixels.shape != shape:
            raise DataError(
                f"{picture.id}: the picture is {_said(picture.pixels)}, and {pictures[0].id} in the same batch is "
                f"{_said(pictures[0].pixels)}; give data.height and data.width"
            )
    golds = [picture.gold for picture in pictures if picture.gold is not None]
    if golds and len(golds) < len(pictures):
        raise DataError(f"{len(golds)} of the {len(pictures)} pictures have gold; either all have it or none")
    return Images(
        pixels=normalised(torch.stack([picture.pixels for picture in pictures]), mean, std),
        labels=torch.tensor([picture.label for picture in pictures]),
        ids=tuple(picture.id for picture in pictures),
        splits=tuple(picture.split for picture in pictures),
        label_names=tuple(label_names),
        gold=torch.stack(golds) if golds else None,
    )


def normalised(
    pixels: UInt8[Tensor, "*b c h w"], mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "*b c h w"]:
    """(pixels / 255 - mean) / std, channel by channel."""
    shift, scale = (255 * torch.tensor(numbers, dtype=torch.float32)[:, None, None] for numbers in (mean, std))
    return pixels.float().sub_(shift).div_(scale)


def _said(pixels: UInt8[Tensor, "c h w"]) -> str:
    channels, height, width = pixels.shape
    return f"{height} x {width} with {channels} channel{'s' * (channels != 1)}"
