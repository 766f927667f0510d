"""Preprocessing and augmentation of pictures.

Pixels are uint8 throughout, and gold is transformed like the pixels. Random numbers are Python's, and torch's within
torchvision; the loader seeds both generators for each example.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from zoo.data.option_hints import format_option
from zoo.errors import ConfigError, DataError, did_you_mean
from zoo.tasks.vision.batch import Picture
from zoo.types import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    validate_ranges,
)

Resize = Literal["crop", "squash", "pad"]
_MOST_PIXELS = 100_000_000
"""Maximum number of pixels of the net's input, and of a scaled picture before it is cropped."""


@validate_ranges
@dataclass(frozen=True)
class Preprocessing:
    """Brings a picture to the size of the net's input. Checkpoints store these arguments.

    Args:
        channels: Number of channels.
        height: Height of the result.
        width: Width of the result.
        mean: Mean of each channel, for pixels between 0 and 1; batches are normalised by it.
        std: Standard deviation of each channel, likewise.
        resize: `crop` scales the picture to cover height / share x width / share, and crops its centre; `squash` scales
            it to the size without keeping its proportions; `pad` scales it to fit, and fills the rest with the mean.
        share: Share of the sides that `crop` keeps; ImageNet's 224 of 256 is 0.875.
    """

    channels: PositiveInt
    height: PositiveInt
    width: PositiveInt
    mean: tuple[Fraction, ...]
    std: tuple[PositiveFloat, ...]
    resize: Resize = "crop"
    share: PositiveFraction = 1.0

    def __post_init__(self) -> None:
        if self.height * self.width > _MOST_PIXELS:
            raise ConfigError(
                f"data.height={self.height} and data.width={self.width} are more than {_MOST_PIXELS:,} pixels"
            )
        if self.resize not in get_args(Resize):
            raise ConfigError(f"data.resize={self.resize!r}: {did_you_mean(str(self.resize), get_args(Resize))}")
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) != self.channels:
                raise ConfigError(f"data.{name} has {len(numbers)} numbers, and the pictures {self.channels} channels")

    def __call__(self, picture: Picture) -> Picture:
        """Returns the picture in the size of the net's input."""
        pixels, gold = picture.pixels, picture.gold
        scaled = self._scale_size(pixels.shape[1], pixels.shape[2])
        if pixels.shape[1:] == scaled == (self.height, self.width):
            return picture
        if self.is_too_long(pixels.shape[1], pixels.shape[2]):
            what, remedy = self.length_problem(pixels.shape[1], pixels.shape[2])
            raise DataError(f"{picture.id}: {what}; {remedy[0].lower()}{remedy[1:].rstrip('.')}")
        pixels = self._window(tv.resize(pixels, list(scaled), antialias=True), self.fill())
        if gold is not None:
            resized: Tensor = tv.resize(tv_tensors.Mask(gold[None]), list(scaled)).as_subclass(Tensor)
            gold = self._window(resized, [0])[0]
        return replace(picture, pixels=pixels, gold=gold)

    def is_too_long(self, height: int, width: int) -> bool:
        """Whether a picture of this size would have too many pixels when it is scaled, before it is cut."""
        scaled = self._scale_size(height, width)
        return scaled[0] * scaled[1] > _MOST_PIXELS

    def length_problem(self, height: int, width: int) -> tuple[str, str]:
        """Returns what is wrong with a picture of this size that is too long, and how to mend it."""
        what = f"a picture of {height:,} x {width:,} is too long to be cut to {self.height} x {self.width}"
        return (
            what,
            f"Cut it yourself, or write {format_option('resize', 'squash')} or {format_option('resize', 'pad')}.",
        )

    def find_crop(self, height: int, width: int) -> tuple[float, float, float, float]:
        """Returns the part of a picture of this size that the net sees: top, left, height and width, in its pixels.

        With `pad`, the part is larger than the picture.
        """
        rows, columns = self._scale_size(height, width)
        top, left = self._corner(rows, columns)
        down, across = height / rows, width / columns
        return top * down, left * across, self.height * down, self.width * across

    def shares(self, boxes: Float[np.ndarray, "n 4"], height: int, width: int) -> Float[np.ndarray, "n 4"]:
        """Returns boxes in pixels of a picture of this size as shares of the part of it that the net sees."""
        top, left, seen_height, seen_width = self.find_crop(height, width)
        found: np.ndarray = (boxes - [top, left, top, left]) / [seen_height, seen_width, seen_height, seen_width]
        return found.clip(0.0, 1.0).astype(np.float32)

    def fill(self) -> list[int]:
        """Returns the mean as an 8-bit pixel."""
        return [round(255 * number) for number in self.mean]

    def _scale_size(self, height: int, width: int) -> tuple[int, int]:
        """Returns the size to which a picture is scaled before it is cropped or padded."""
        if self.resize == "squash":
            return self.height, self.width
        across = self.width / width, self.height / height
        factor = min(across) if self.resize == "pad" else max(across) / self.share
        size = round(height * factor), round(width * factor)
        if self.resize == "pad":
            return max(1, min(size[0], self.height)), max(1, min(size[1], self.width))
        return max(size[0], self.height), max(size[1], self.width)

    def _corner(self, rows: int, columns: int) -> tuple[int, int]:
        """Returns top and left of the crop in the scaled picture; they are negative for padding."""
        return round((rows - self.height) / 2), round((columns - self.width) / 2)

    def _window(self, planes: Tensor, fill: Sequence[int]) -> Tensor:
        """Crops or pads the scaled picture."""
        rows, columns = planes.shape[-2:]
        top, left = self._corner(rows, columns)
        inside = planes[:, max(0, top) : top + self.height, max(0, left) : left + self.width]
        if inside.shape[-2:] == (self.height, self.width):
            return inside
        padded = torch.tensor(fill, dtype=planes.dtype)[:, None, None].repeat(1, self.height, self.width)
        padded[:, max(0, -top) : max(0, -top) + rows, max(0, -left) : max(0, -left) + columns] = inside
        return padded


@validate_ranges
class Augmentation:
    """Changes a training picture at random, by the operations below in this order.

    Args:
        resized_crop: Range of the share of the picture's area in a random crop, with sides up to 4:3, which is scaled
            to the size of the net's input. Default: the picture is preprocessed as in evaluation.
        crop_padding: Number of black pixels around the picture, out of which its own size is cropped at random.
        flip: If True, the picture is mirrored left to right with probability 1/2.
        rand_augment: Number of RandAugment's operations for each picture (Cubuk et al. 2020).
        magnitude: Magnitude of these operations, from 0 to 30.
        color_jitter: Brightness, contrast and saturation are multiplied by random factors from 1 - this to 1 + this.
        erasing: Probability that a random rectangle is filled with the mean (Zhong et al. 2020).
    """

    def __init__(
        self,
        *,
        resized_crop: Sequence[PositiveFraction] | None = None,
        crop_padding: NonNegativeInt = 0,
        flip: bool = False,
        rand_augment: NonNegativeInt = 0,
        magnitude: Annotated[int, ">= 0", "<= 30"] = 9,
        color_jitter: NonNegativeFloat = 0.0,
        erasing: Fraction = 0.0,
    ) -> None:
        group = "data.augmentation"
        if resized_crop is not None and not (len(resized_crop) == 2 and 0 < resized_crop[0] <= resized_crop[1] <= 1):
            raise ConfigError(f"{group}.resized_crop={list(resized_crop)}: write two shares, such as [0.08, 1.0]")
        self.resized_crop = None if resized_crop is None else (float(resized_crop[0]), float(resized_crop[1]))
        self.crop_padding = crop_padding
        self.flip = flip
        self.rand_augment = rand_augment
        self.magnitude = magnitude
        self.jitter = v2.ColorJitter(color_jitter, color_jitter, color_jitter) if color_jitter else None
        self.erasing = erasing

    def __call__(self, picture: Picture, to: Preprocessing) -> Picture:
        """Returns a changed picture in the size of `to`."""
        if picture.gold is not None and self.rand_augment:
            raise ConfigError(
                "data.augmentation.rand_augment turns and shifts pixels, and these pictures have gold, which would "
                "stay behind; write data.augmentation.rand_augment=0"
            )
        pixels, gold = self._place(picture, to)
        if self.rand_augment:
            pixels = v2.RandAugment(self.rand_augment, self.magnitude, fill=to.fill())(pixels)
        if self.jitter is not None:
            pixels = self.jitter(pixels)
        if self.erasing:
            pixels = v2.RandomErasing(self.erasing, value=to.fill())(pixels)
        return replace(picture, pixels=pixels, gold=gold)

    def _place(self, picture: Picture, to: Preprocessing) -> tuple[UInt8[Tensor, "c h w"], Bool[Tensor, "h w"] | None]:
        """Applies the operations that move pixels, to the picture and its gold."""
        picture = to(picture) if self.resized_crop is None else _resized_crop(picture, to, self.resized_crop)
        pixels, gold = picture.pixels, picture.gold
        if self.crop_padding:
            down, right = (random.randint(-self.crop_padding, self.crop_padding) for _ in range(2))
            pixels = _shift(pixels, down, right)
            gold = None if gold is None else _shift(gold, down, right)
        if self.flip and random.random() < 0.5:
            pixels = pixels.flip(-1)
            gold = None if gold is None else gold.flip(-1)
        return pixels, gold


def _resized_crop(picture: Picture, to: Preprocessing, scale: tuple[float, float]) -> Picture:
    crop = v2.RandomResizedCrop((to.height, to.width), scale=scale, antialias=True)
    if picture.gold is None:
        return replace(picture, pixels=crop(picture.pixels))
    pixels, gold = crop(tv_tensors.Image(picture.pixels), tv_tensors.Mask(picture.gold))
    return replace(picture, pixels=pixels.as_subclass(Tensor), gold=gold.as_subclass(Tensor))


def _shift(planes: Tensor, down: int, right: int) -> Tensor:
    """Shifts planes and fills with zeros; ten times as fast as padding and cropping in torchvision."""
    height, width = planes.shape[-2:]
    moved = torch.zeros_like(planes)
    rows, columns = max(0, height - abs(down)), max(0, width - abs(right))
    to, into = max(0, down), max(0, right)
    of, out_of = max(0, -down), max(0, -right)
    moved[..., to : to + rows, into : into + columns] = planes[..., of : of + rows, out_of : out_of + columns]
    return moved
