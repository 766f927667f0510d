"""Random changes of training recordings: their speed, and masks of frames and of features."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from jaxtyping import Float
from torch import Tensor
from torchaudio.functional import mask_along_axis

from zoo.errors import ConfigError
from zoo.types import Fraction, NonNegativeInt, validate_ranges

Speed = Annotated[float, ">= 0.5", "<= 2"]
_FRAMES, _FEATURES = 1, 2


@validate_ranges
@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Options of the random changes. By default, nothing is changed.

    SpecAugment (Park et al. 2019) is without its time warping, which the paper found to matter least. Its policy LD has
    2 frequency masks of up to 27 of 80 features, and 2 time masks of up to 100 frames.

    Args:
        frequency_masks: Number of masks of neighbouring features.
        frequency_width: Largest number of features of such a mask.
        time_masks: Number of masks of neighbouring frames.
        time_width: Largest number of frames of such a mask.
        time_share: Largest share of a recording that one such mask covers, for short recordings.
        speeds: Factors, one of which is drawn for each recording in each epoch (Ko et al. 2015: 0.9, 1, 1.1).
    """

    frequency_masks: NonNegativeInt = 0
    frequency_width: NonNegativeInt = 13
    time_masks: NonNegativeInt = 0
    time_width: NonNegativeInt = 100
    time_share: Fraction = 0.2
    speeds: Sequence[Speed] = (1.0,)

    def __post_init__(self) -> None:
        if not self.speeds:
            raise ConfigError("data.augmentation.speeds: write at least one factor; [1.0] changes nothing")

    @property
    def changes(self) -> bool:
        """True if the options change anything."""
        return bool(self.frequency_masks or self.time_masks) or list(self.speeds) != [1.0]

    def speed(self) -> float:
        """Draws a speed, from the generator of `random`."""
        return random.choice(self.speeds)

    def mask(self, x: Float[Tensor, "t f"]) -> Float[Tensor, "t f"]:
        """Masks a normalised recording with its mean, drawing from the generator of torch."""
        spectrogram, mean = x.unsqueeze(0), float(x.mean())
        for _ in range(self.frequency_masks):
            spectrogram = mask_along_axis(spectrogram, min(self.frequency_width, x.shape[1]), mean, _FEATURES)
        for _ in range(self.time_masks):
            spectrogram = mask_along_axis(spectrogram, self.time_width, mean, _FRAMES, p=self.time_share)
        return spectrogram.squeeze(0)
