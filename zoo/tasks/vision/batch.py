"""Pictures, and batches of normalised pictures of one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from zoo.data.transfer import to_device
from zoo.errors import DataError, count_noun


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture as an example.

    Args:
        pixels: Pixels of any size, as the file has them.
        label: Index of the class; -1 if it is unknown.
        id: Path of the file, or name of the example.
        split: train, val or test; "" for none.
        gold: True at the pixels that determine the label. Default: unknown.
    """

    pixels: UInt8[Tensor, "c h w"]
    label: int
    id: str
    split: str
    gold: Bool[Tensor, "h w"] | None = None


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """A batch of pictures.

    Args:
        pixels: Normalised pixels.
        labels: Index of each picture's class; -1 if it is unknown.
        ids: Path of each picture's file, or name of the example.
        splits: train, val or test; "" for none.
        label_names: Name of each class.
        gold: True at the pixels that determine the label. Default: unknown.
    """

    pixels: Float[Tensor, "b c h w"]
    labels: Int[Tensor, " b"]
    ids: tuple[str, ...]
    splits: tuple[str, ...]
    label_names: tuple[str, ...]
    gold: Bool[Tensor, "b h w"] | None = None

    def replace_pixels(self, pixels: Float[Tensor, "b c h w"]) -> ImageBatch:
        """Returns the same examples with other pixels."""
        return replace(self, pixels=pixels)

    def to(self, device: torch.device | str) -> ImageBatch:
        return to_device(self, device)


def collate(
    pictures: Sequence[Picture], *, mean: Sequence[float], std: Sequence[float], label_names: Sequence[str]
) -> ImageBatch:
    """Makes a batch of pictures of one size, and normalises it.

    Args:
        pictures: At least one picture.
        mean: Mean of each channel, for pixels between 0 and 1.
        std: Standard deviation of each channel, for pixels between 0 and 1.
        label_names: Name of each class.
    """
    shape = pictures[0].pixels.shape
    for picture in pictures:
        if picture.pixels.shape != shape:
            raise DataError(
                f"{picture.id}: the picture is {_size_of(picture.pixels)}, and {pictures[0].id} in the same batch is "
                f"{_size_of(pictures[0].pixels)}; give data.height and data.width"
            )
    golds = [picture.gold for picture in pictures if picture.gold is not None]
    if golds and len(golds) < len(pictures):
        raise DataError(f"{len(golds)} of the {len(pictures)} pictures have gold; either all have it or none")
    return ImageBatch(
        pixels=normalize(torch.stack([picture.pixels for picture in pictures]), mean, std),
        labels=torch.tensor([picture.label for picture in pictures]),
        ids=tuple(picture.id for picture in pictures),
        splits=tuple(picture.split for picture in pictures),
        label_names=tuple(label_names),
        gold=torch.stack(golds) if golds else None,
    )


def normalize(
    pixels: UInt8[Tensor, "*b c h w"], mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "*b c h w"]:
    """Computes (pixels / 255 - mean) / std for each channel."""
    shift, scale = (255 * torch.tensor(numbers, dtype=torch.float32)[:, None, None] for numbers in (mean, std))
    return pixels.float().sub_(shift).div_(scale)


def _size_of(pixels: UInt8[Tensor, "c h w"]) -> str:
    channels, height, width = pixels.shape
    return f"{height} x {width} with {count_noun(channels, 'channel')}"
