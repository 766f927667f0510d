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


class Sums(Metric):
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


def corpus_score(score: Score, name: str) -> Sums:
    """Returns the metric of a corpus score, which is updated with `score.statistics`."""
    return Sums(score.size, lambda sums: score.compute(sums)[name])


def ratio() -> Sums:
    """Returns the metric of a part and the whole that it is a part of."""
    return Sums(2, lambda sums: sums[0] / sums[1] if sums[1] else math.nan)


def repeated(words: Sequence[str], reference: Sequence[str]) -> tuple[int, int]:
    """Counts the pairs of neighbouring words that a text repeats more often than its reference does, and all of them.

    A pair may occur once, or as often as in the reference.
    """
    pairs, expected = Counter(pairwise(words)), Counter(pairwise(reference))
    extra = sum(count - max(1, expected[pair]) for pair, count in pairs.items() if count > max(1, expected[pair]))
    return extra, pairs.total()
