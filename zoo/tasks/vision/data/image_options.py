"""What a configuration says of the pictures that a net reads; the pictures themselves say the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.errors import ConfigError
from zoo.tasks.command_options import CommandOption
from zoo.tasks.vision.data.transforms import Preprocessing, Resize
from zoo.types import Fraction, PositiveFloat, PositiveFraction, PositiveInt, validate_ranges
from zoo.validation import COUNT

_IMAGENET_MEAN = {3: (0.485, 0.456, 0.406), 1: (0.459,)}
_IMAGENET_STD = {3: (0.229, 0.224, 0.225), 1: (0.226,)}
"""Statistics of ImageNet's training pictures by number of channels; grey is 0.299 red + 0.587 green + 0.114 blue."""


def pixels(text: str) -> int:
    """Returns a number of pixels from the command line."""
    count = int(text)
    if count < 1:
        raise ValueError(f"{text} is below 1")
    return count


MOST_INPUT_PIXELS = 1 << 21
"""Pixels of a net's input, and of a batch of inputs, that a checkpoint may ask for: 1,448 x 1,448."""
MOST_INPUT = CommandOption(
    name="most-input-pixels",
    metavar="N",
    kind=pixels,
    help=f"largest height times width to which the checkpoint may resize pictures (default {MOST_INPUT_PIXELS:,})",
)

PREPROCESSING: Mapping[str, Any] = {
    "height": COUNT,
    "width": COUNT,
    "mean": [float],
    "std": [float],
    "resize": str,
    "share": float,
}
"""The form of `preprocessing_state` in a checkpoint."""


@validate_ranges
@dataclass(frozen=True)
class ImageOptions:
    """The options of preprocessing.

    Args:
        mean: Mean of each channel over the training split, for pixels between 0 and 1. Default: ImageNet's.
        std: Standard deviation of each channel, likewise. Default: ImageNet's.
        height: Height of the net's input. Default: that of the pictures, if all have the same size.
        width: Width of the net's input, likewise.
        resize: How pictures of other sizes are resized; see `Preprocessing`.
        share: Share of the sides that is kept if resize=crop.
    """

    mean: Sequence[Fraction] | None = None
    std: Sequence[PositiveFloat] | None = None
    height: PositiveInt | None = None
    width: PositiveInt | None = None
    resize: Resize = "crop"
    share: PositiveFraction = 1.0

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ImageOptions:
        """The preprocessing of a checkpoint, as options."""
        return cls(**{name: state[name] for name in PREPROCESSING})

    def make_preprocessing(self, channels: int, size: tuple[int, int] | None) -> Preprocessing:
        """Returns the preprocessing of pictures with these channels, whose common size is None if they have none."""
        if size is None and (self.height is None or self.width is None):
            raise ConfigError("these pictures have no size in common; give data.height and data.width")
        height, width = size or (0, 0)
        return Preprocessing(
            channels=channels,
            height=height if self.height is None else self.height,
            width=width if self.width is None else self.width,
            mean=tuple(_IMAGENET_MEAN[channels] if self.mean is None else self.mean),
            std=tuple(_IMAGENET_STD[channels] if self.std is None else self.std),
            resize=self.resize,
            share=self.share,
        )

    def fit(self, channels: int) -> Preprocessing | None:
        """Returns the preprocessing if the size of the net's input is given, and not that of the pictures."""
        return None if self.height is None or self.width is None else self.make_preprocessing(channels, None)

    def min_side(self, crop: float = 1.0) -> int | None:
        """The smallest size of a side to which a JPEG may be reduced (by 2, 4 or 8) in decoding; None: no reduction.

        It is twice the size of the net's input, divided by the share of the smallest crop.

        Args:
            crop: Share of a side that the smallest random crop keeps.
        """
        if self.height is None or self.width is None:
            return None
        return math.ceil(2 * max(self.height, self.width) / max(min(self.share, crop), 0.01))


def check_input_pixels(state: Mapping[str, Any], most: int) -> None:
    """Refuses a checkpoint whose net reads larger pictures; its weights need not tell, as those of convolutions."""
    height, width = state["height"], state["width"]
    if height * width > most:
        raise ConfigError(
            f"the checkpoint resizes pictures to {height:,} x {width:,}, which are more pixels than {most:,}; if it is "
            f"yours and there is memory for them, allow them with --most-input-pixels {height * width}"
        )


def preprocessing_state(seen: Preprocessing) -> dict[str, Any]:
    """Returns a preprocessing without its channels in plain types, for a checkpoint."""
    found = {name: getattr(seen, name) for name in PREPROCESSING}
    return {**found, "mean": list(seen.mean), "std": list(seen.std)}
