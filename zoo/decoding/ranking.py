"""Rules that rank hypotheses of different lengths, and the bound that decides when a search may stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Float, Int
from torch import Tensor

from zoo.types import NonNegativeFloat, validate_ranges

_MIN_COVERAGE = 1e-12


class LengthRule(Protocol):
    """The divisor of a log-probability, which depends on the length of the hypothesis.

    `Ranking.bound` needs it to be positive, and not to fall as the length grows.
    """

    def __call__(self, length: Float[Tensor, "..."]) -> Float[Tensor, "..."]: ...


@dataclass(frozen=True)
class NoLength:
    """Divides by 1: hypotheses are ranked by their probability, which favors short ones."""

    def __call__(self, length: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return length.new_ones(length.shape)


@dataclass(frozen=True)
class AverageLength:
    """Divides by the number of tokens: hypotheses are ranked by the mean log-probability of a token."""

    def __call__(self, length: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return length.clamp(min=1.0)


@validate_ranges
@dataclass(frozen=True)
class GNMTLength:
    """Divides by ((5 + length) / 6)^alpha (Wu et al. 2016, eq. 14).

    Args:
        alpha: Exponent: 0.2 in the paper, with its coverage penalty; 0.6 is usual without one.
    """

    alpha: NonNegativeFloat = 0.6

    def __call__(self, length: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return ((5.0 + length) / 6.0) ** self.alpha


@validate_ranges
@dataclass(frozen=True)
class Ranking:
    """Scores hypotheses by log P(Y | X) / length(|Y|) + coverage sum_k log min(c_k, 1) (Wu et al. 2016, eq. 14).

    c_k is the total weight of place k of the source, and |Y| includes the end. The search keeps the most probable
    hypotheses; this score ranks those that have ended.

    Args:
        length: Divisor of the log-probability.
        coverage: beta, the weight of the coverage penalty (0.2 in the paper). Default: no penalty.
    """

    length: LengthRule = NoLength()
    coverage: NonNegativeFloat = 0.0

    def score(
        self, log_probability: Float[Tensor, " n"], length: int, coverage: Float[Tensor, "n k"] | None
    ) -> Float[Tensor, " n"]:
        """Returns the scores of hypotheses of one length; only a coverage penalty needs `coverage`."""
        score = log_probability / self.length(log_probability.new_tensor(float(length)))
        if self.coverage == 0.0:
            return score
        assert coverage is not None
        return score + self.coverage * coverage.to(score).clamp(_MIN_COVERAGE, 1.0).log().sum(-1)

    def upper_bound(self, log_probability: Float[Tensor, " n"], longest: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Returns the highest score that a hypothesis can reach with further tokens.

        Tokens do not raise the probability, the largest length has the largest divisor, and penalties are not positive.
        """
        return log_probability / self.length(longest.to(log_probability))


BY_PROBABILITY = Ranking()
