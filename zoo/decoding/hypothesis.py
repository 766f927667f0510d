"""The result of a search."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """A text that a decoder has generated."""

    tokens: tuple[int, ...]
    """Vocabulary indices of the tokens, without the end."""
    score: float
    """Score by which hypotheses are ranked."""
    log_probability: float
    """Natural logarithm of the probability of the tokens, including the end if there is one."""
    ended: bool
    """False if the largest length was reached before the end, or if all further tokens were forbidden."""

    @property
    def probability(self) -> float:
        return math.exp(self.log_probability)

    def target(self, end: int) -> tuple[int, ...]:
        """Returns the targets of the decoder's steps: the tokens, and the end if the hypothesis has ended."""
        return (*self.tokens, end) if self.ended else self.tokens
