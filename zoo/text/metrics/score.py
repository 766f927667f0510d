"""Scores of a corpus, computed from sums that can be added over batches and processes.

    totals = [0.0] * score.size
    for hypotheses, references in batches:
        totals = add_sums(totals, score.statistics(hypotheses, references))
    score.compute(totals)

The figures of a corpus come from the sums of its parts. They are not means of the parts' figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol


class Score(Protocol):
    """A score of texts against references."""

    size: int
    """Number of sums."""

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Returns the sums of some texts, each with one or more references; zeros if there are no texts.

        Raises:
            DataError: A text has too few or too many references.
        """

    def compute(self, sums: Sequence[float]) -> Mapping[str, float]:
        """Returns the score and its parts by name; NaN if nothing was counted."""

    def signature(self) -> str:
        """Returns a description of the protocol, to be stored with the figures."""


def add_sums(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Adds the sums of two parts."""
    return [a + b for a, b in zip(first, second, strict=True)]


class Perplexity:
    """The exponential of the mean negative log-likelihood of a token.

    The two sums come from a model: the negative log-likelihoods (natural logarithm), and the number of tokens.
    """

    size = 2

    def compute(self, sums: Sequence[float]) -> Mapping[str, float]:
        loss, tokens = sums
        if not tokens:
            return {"perplexity": math.nan}
        return {"perplexity": math.exp(loss / tokens) if loss / tokens < math.log(1e300) else math.inf}
