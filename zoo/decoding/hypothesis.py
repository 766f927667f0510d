"""The result of a search."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """A text that a decoder has generated, as numbers of tokens."""

    tokens: tuple[int, ...]
    """The tokens without the end."""
    score: float
    """The number by which hypotheses are ranked."""
    log_probability: float
    """Natural logarithm of the probability of the tokens, the end included if there is one."""
    ended: bool
    """False if the largest length was reached, or nothing more was allowed, before the end."""

    @property
    def probability(self) -> float:
        return math.exp(self.log_probability)

    def target(self, end: int) -> tuple[int, ...]:
        """Returns the tokens, the end included if the hypothesis has ended: the targets of its steps."""
        return (*self.tokens, end) if self.ended else self.tokens
