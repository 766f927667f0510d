"""Recordings at another rate, or played at another speed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
import torchaudio
from jaxtyping import Float32

_MOST = 1000
"""Largest denominator of a ratio of rates: the filter has as many phases, and the duration is off by 1e-6 at most."""


def resample(
    samples: Float32[np.ndarray, " n"], rate: float, wanted: float, speed: float = 1.0
) -> Float32[np.ndarray, " m"]:
    """Returns a recording at another rate.

    Args:
        samples: The recording.
        rate: Its samples per second.
        wanted: Samples per second of the result.
        speed: Factor by which the result is played faster, with a higher pitch (Ko et al. 2015).
    """
    ratio = ratio_of(rate, wanted, speed)
    if ratio == 1:
        return samples
    with torch.no_grad():
        found = torchaudio.functional.resample(torch.from_numpy(samples), ratio.numerator, ratio.denominator)
    return np.asarray(found.numpy())


def ratio_of(rate: float, wanted: float, speed: float = 1.0) -> Fraction:
    """Returns how many samples become one."""
    ratio = (Fraction(rate).limit_denominator(_MOST) * Fraction(speed).limit_denominator(_MOST)) / Fraction(wanted)
    return ratio.limit_denominator(_MOST)
