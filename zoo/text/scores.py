"""Scores of a whole corpus, as sums that add up: over batches, over processes, over the parts of a test set.

    totals = [0.0] * score.size
    for hypotheses, references in batches:
        totals = added(totals, score.sums(hypotheses, references))
    score.figures(totals)

What is summed are counts, and means only of what the score itself takes the mean of: the figure of a corpus is not the
mean of the figures of its parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol


class Score(Protocol):
    """How near texts are to those that were expected."""

    size: int
    """How many sums there are."""

    def sums(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Those of some texts, each with one reference or more; zeros for none.

        Raises:
            DataError: The score is not defined for so many references.
        """

    def figures(self, sums: Sequence[float]) -> Mapping[str, float]:
        """The score, and what it consists of, by name; NaN where nothing was counted."""

    def signature(self) -> str:
        """How it is measured, to be stored beside the figures."""


def added(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """The sums of both parts."""
    return [one + other for one, other in zip(first, second, strict=True)]


class Perplexity:
    """exp of the mean negative log-likelihood of a token. Its sums come from a model and not from texts."""

    size = 2

    def figures(self, sums: Sequence[float]) -> Mapping[str, float]:
        """Of the sum of negative log-likelihoods (natural logarithm), and the number of tokens."""
        loss, tokens = sums
        if not tokens:
            return {"perplexity": math.nan}
        return {"perplexity": math.exp(loss / tokens) if loss / tokens < math.log(1e300) else math.inf}
