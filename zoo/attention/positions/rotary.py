"""Rotary positions, and scalings of them for sequences longer than in training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention.kernels.dtypes import accumulation_dtype
from zoo.attention.mechanism import Position, Traits
from zoo.attention.positions.embeddings import frequencies
from zoo.attention.supports.support import Support
from zoo.types import PositiveFloat, PositiveFraction, PositiveInt, validate_ranges


@runtime_checkable
class Scaling(Protocol):
    """A change of the frequencies for inputs longer than in training."""

    @property
    def magnitude(self) -> float:
        """Factor of the rotated queries and keys."""
        ...

    def __call__(self, frequencies: Float[Tensor, " m"]) -> Float[Tensor, " m"]: ...


@validate_ranges
class Rotary(Position):
    """(R_i q) · (R_j k): rotated by their positions, the product depends on i - j (Su et al. 2021, eq. 15 and 34).

    This holds for scores that depend on the angle between query and key: products and cosines. Other scores are
    refused, because they would depend on the absolute positions.

    Elements 2i and 2i + 1 form a pair that is rotated by p base^(-2i/d), as in the paper. Pretrained weights of models
    that pair i with i + d/2 (GPT-NeoX, Llama in the Hugging Face layout) need their projections permuted.

    Cost: O(n d)

    Args:
        dim: Width of one head.
        base: Base of the wavelengths, which range from 2 pi to 2 pi times this.
        fraction: Share of the width that is rotated; the rest has no position (Black et al. 2022, section 2.1.1).
        scaling: Scaling for inputs longer than in training: `Interpolated`, `NTKAware` or `YaRN`. Default: none.
    """

    traits = Traits(rotates=True)

    def __init__(
        self,
        *,
        dim: PositiveInt,
        base: PositiveFloat = 10_000.0,
        fraction: PositiveFraction = 1.0,
        scaling: Scaling | None = None,
    ) -> None:
        super().__init__()
        self.turned = int(dim * fraction)
        if self.turned < 2 or self.turned % 2:
            raise ValueError(f"elements are rotated in pairs: dim times fraction must be even, got {self.turned}")
        self.base = base
        self.scaling = scaling

    def turn(self, key: Float[Tensor, "... n d"], start: int = 0) -> Float[Tensor, "... n d"]:
        dtype = accumulation_dtype(key)
        positions = torch.arange(start, start + key.shape[-2], device=key.device).to(dtype)
        speed = frequencies(self.turned, self.base, positions)
        magnitude = 1.0
        if self.scaling is not None:
            speed, magnitude = self.scaling(speed), self.scaling.magnitude
        x, rest = key[..., : self.turned].to(dtype), key[..., self.turned :]
        pairs = x.view(*x.shape[:-1], self.turned // 2, 2)
        turned = _rotate(pairs, positions.unsqueeze(1) * speed, magnitude).flatten(-2).to(key.dtype)
        return torch.cat([turned, rest], -1) if rest.shape[-1] else turned

    def turn_query(
        self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], support: Support
    ) -> Float[Tensor, "..."]:
        return self.turn(query, support.first_position(query, key))


@validate_ranges
@dataclass(frozen=True)
class Interpolated:
    """Replaces p by p / s, so that positions of a longer input lie between trained ones (Chen et al. 2023, eq. 4).

    Args:
        factor: s, the length of the input divided by the length in training.
    """

    magnitude: ClassVar[float] = 1.0

    factor: Annotated[float, ">= 1"]

    def __call__(self, frequencies: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        return frequencies / self.factor


@validate_ranges
@dataclass(frozen=True)
class NTKAware:
    """Replaces base by base s^(d/(d-2)) (Peng et al. 2023, definition 1).

    The slowest pair is interpolated, and the fastest does not change.

    Args:
        factor: s, the length of the input divided by the length in training.
    """

    magnitude: ClassVar[float] = 1.0

    factor: Annotated[float, ">= 1"]

    def __call__(self, frequencies: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        pairs = len(frequencies)
        share = torch.arange(pairs, dtype=frequencies.dtype, device=frequencies.device) / max(pairs - 1, 1)
        return frequencies * self.factor**-share


@validate_ranges
@dataclass(frozen=True)
class YaRN:
    """Interpolates each pair by its number of rotations in training (Peng et al. 2023, definition 3 and section 3.4).

    A pair with more than `fast` rotations does not change, one with fewer than `slow` is interpolated, and those
    between are a linear mixture. Queries and keys are multiplied by 0.1 ln s + 1, which sharpens the softmax.

    Args:
        factor: s, the length of the input divided by the length in training.
        trained: Length in training.
        slow, fast: Numbers of rotations, the paper's alpha and beta.
    """

    factor: Annotated[float, ">= 1"]
    trained: PositiveInt
    slow: PositiveFloat = 1.0
    fast: PositiveFloat = 32.0

    def __post_init__(self) -> None:
        if not self.slow < self.fast:
            raise ValueError(f"slow must be below fast, got {self.slow} and {self.fast}")

    @property
    def magnitude(self) -> float:
        return 0.1 * math.log(self.factor) + 1.0

    def __call__(self, frequencies: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        turns = self.trained * frequencies / (2.0 * math.pi)
        ramp = ((turns - self.slow) / (self.fast - self.slow)).clamp(0.0, 1.0)
        return frequencies * (ramp + (1.0 - ramp) / self.factor)


def _rotate(
    pairs: Float[Tensor, "*b n m 2"], angles: Float[Tensor, "n m"], magnitude: float
) -> Float[Tensor, "*b n m 2"]:
    """Rotates pairs by products of complex numbers, which take one kernel.

    `torch.compile` does not support complex numbers; it fuses the real form into one kernel.
    """
    if torch.compiler.is_compiling():
        cos, sin = angles.cos() * magnitude, angles.sin() * magnitude
        even, odd = pairs.unbind(-1)
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1)
    steps = (*pairs.stride()[:-1], pairs.storage_offset())
    if pairs.stride(-1) != 1 or any(step % 2 for step in steps):
        pairs = pairs.contiguous()
    turns = torch.polar(torch.full_like(angles, magnitude), angles)
    return torch.view_as_real(torch.view_as_complex(pairs) * turns)
