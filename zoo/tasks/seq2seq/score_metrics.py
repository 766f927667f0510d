"""Corpus scores of texts as metrics: sums over batches and processes, and figures of the total."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torchmetrics import Metric

from zoo.text import Score


class SumMetric(Metric):
    """Sums in double precision, and a figure that is computed from them.

    Args:
        size: Number of sums.
        figure: Computes the figure.
    """

    full_state_update = False
    sums: Tensor

    def __init__(self, size: int, figure: Callable[[list[float]], float]) -> None:
        super().__init__()
        self.figure = figure
        self.add_state("sums", torch.zeros(size, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, values: Sequence[float]) -> None:
        self.sums += torch.tensor(values, dtype=torch.float64).to(self.sums.device)

    def compute(self) -> Tensor:
        return torch.tensor(self.figure(self.sums.tolist()), dtype=torch.float64).float()


class CorpusScoreMetric(SumMetric):
    """A figure of a corpus score, updated with `score.statistics`.

    Args:
        score: The score.
        name: Name of the figure.
    """

    def __init__(self, score: Score, name: str) -> None:
        super().__init__(score.size, lambda sums: score.compute(sums)[name])


class RatioMetric(SumMetric):
    """A part of a whole, updated with both."""

    def __init__(self) -> None:
        super().__init__(2, lambda sums: sums[0] / sums[1] if sums[1] else math.nan)


def count_repetitions(words: Sequence[str], reference: Sequence[str]) -> tuple[int, int]:
    """Counts the pairs of neighbouring words that a text repeats more often than its reference does, and all of them.

    A pair may occur once, or as often as in the reference.
    """
    pairs, expected = Counter(pairwise(words)), Counter(pairwise(reference))
    extra = sum(count - max(1, expected[pair]) for pair, count in pairs.items() if count > max(1, expected[pair]))
    return extra, pairs.total()
