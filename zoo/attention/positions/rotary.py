"""Rotary positions, and what makes them reach beyond the length that a model was trained at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention.kernels.precision import wide
from zoo.attention.positions.embeddings import frequencies
from zoo.attention.positions.relative import Position, first_position
from zoo.attention.ranges import Count, Positive, PositiveShare
from zoo.attention.supports.layouts import Support


@runtime_checkable
class Scaling(Protocol):
    """How frequencies change for inputs longer than the training's."""

    @property
    def magnitude(self) -> float:
        """What turned queries and keys are multiplied by."""
        ...

    def __call__(self, frequencies: Float[Tensor, " m"]) -> Float[Tensor, " m"]: ...


class Rotary(Position):
    """(R_i q) · (R_j k), each turned by its position, depends on i - j (Su et al. 2021, eq. 15 and 34).

    That is so for scores by the angle between the two: products and cosines. Others are refused, because their scores
    would depend on where both stand.

    Neighbouring numbers (2i, 2i + 1) are a pair and turned by p base^(-2i/d), as in the paper; weights of models that
    pair i with i + d/2 (GPT-NeoX, Llama in Hugging Face's layout) need their projections permuted.

    Cost: O(n d)

    Args:
        dim: Width of one head.
        base: The longest wavelength is 2 pi times this.
        fraction: How much of the width is turned; the rest knows no position (Black et al. 2022, section 2.1.1).
        scaling: For longer inputs than in training: `Interpolated`, `NTKAware`, `YaRN`.
    """

    turns = True

    def __init__(
        self, *, dim: Count, base: Positive = 10_000.0, fraction: PositiveShare = 1.0, scaling: Scaling | None = None
    ) -> None:
        super().__init__()
        if not 0.0 < fraction <= 1.0:
            raise ValueError(f"fraction must be above 0 and at most 1, got {fraction}")
        self.turned = int(dim * fraction)
        if self.turned < 2 or self.turned % 2:
            raise ValueError(f"numbers are turned in pairs: dim times fraction must be even, got {self.turned}")
        self.base = base
        self.scaling = scaling

    def turn(self, key: Float[Tensor, "... n d"], start: int = 0) -> Float[Tensor, "... n d"]:
        dtype = wide(key)
        positions = torch.arange(start, start + key.shape[-2], device=key.device).to(dtype)
        speed = frequencies(self.turned, self.base, positions)
        magnitude = 1.0
        if self.scaling is not None:
            speed, magnitude = self.scaling(speed), self.scaling.magnitude
        x, rest = key[..., : self.turned].to(dtype), key[..., self.turned :]
        pairs = x.view(*x.shape[:-1], self.turned // 2, 2)
        turned = _turned(pairs, positions.unsqueeze(1) * speed, magnitude).flatten(-2).to(key.dtype)
        return torch.cat([turned, rest], -1) if rest.shape[-1] else turned

    def turn_query(
        self, query: Float[Tensor, "..."], key: Float[Tensor, "..."], support: Support
    ) -> Float[Tensor, "..."]:
        return self.turn(query, first_position(query, key, support))


@dataclass(frozen=True)
class Interpolated:
    """p / s for p: positions of the longer input fall between the trained ones (Chen et al. 2023, eq. 4).

    Args:
        factor: s, the length read over the length trained at.
    """

    magnitude: ClassVar[float] = 1.0

    factor: Positive

    def __post_init__(self) -> None:
        _check_factor(self.factor)

    def __call__(self, frequencies: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        return frequencies / self.factor


@dataclass(frozen=True)
class NTKAware:
    """base s^(d/(d-2)) for base: the slowest pair is interpolated, the fastest kept (Peng et al. 2023, definition 1).

    Args:
        factor: s, the length read over the length trained at.
    """

    magnitude: ClassVar[float] = 1.0

    factor: Positive

    def __post_init__(self) -> None:
        _check_factor(self.factor)

    def __call__(self, frequencies: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        pairs = len(frequencies)
        share = torch.arange(pairs, dtype=frequencies.dtype, device=frequencies.device) / max(pairs - 1, 1)
        return frequencies * self.factor**-share


@dataclass(frozen=True)
class YaRN:
    """Pairs are interpolated by how often they turned in training (Peng et al. 2023, definition 3 and section 3.4).

    A pair that turned more than `fast` times is kept, one that turned less than `slow` times interpolated, between
    them linearly mixed. Queries and keys grow by 0.1 ln s + 1, which sharpens the softmax.

    Args:
        factor: s, the length read over the length trained at.
        trained: The length trained at.
        slow, fast: The paper's alpha and beta.
    """

    factor: Positive
    trained: int
    slow: float = 1.0
    fast: float = 32.0

    def __post_init__(self) -> None:
        _check_factor(self.factor)
        if not 0.0 < self.slow < self.fast:
            raise ValueError(f"slow must be above 0 and below fast, got {self.slow} and {self.fast}")

    @property
    def magnitude(self) -> float:
        return 0.1 * math.log(self.factor) + 1.0

    def __call__(self, frequencies: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        turns = self.trained * frequencies / (2.0 * math.pi)
        kept = ((turns - self.slow) / (self.fast - self.slow)).clamp(0.0, 1.0)
        return frequencies * (kept + (1.0 - kept) / self.factor)


def _turned(
    pairs: Float[Tensor, "*b n m 2"], angles: Float[Tensor, "n m"], magnitude: float
) -> Float[Tensor, "*b n m 2"]:
    """As products of complex numbers, one kernel for all that is done; a compiler knows none, but makes one itself."""
    if torch.compiler.is_compiling():
        cos, sin = angles.cos() * magnitude, angles.sin() * magnitude
        even, odd = pairs.unbind(-1)
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1)
    steps = (*pairs.stride()[:-1], pairs.storage_offset())
    if pairs.stride(-1) != 1 or any(step % 2 for step in steps):
        pairs = pairs.contiguous()
    turns = torch.polar(torch.full_like(angles, magnitude), angles)
    return torch.view_as_real(torch.view_as_complex(pairs) * turns)


def _check_factor(factor: float) -> None:
    if not factor >= 1.0:
        raise ValueError(f"factor is the longer length over the trained one and at least 1, got {factor}")
