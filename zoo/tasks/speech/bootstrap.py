"""Confidence intervals of corpus scores, by drawing utterances again and again.

Every utterance has a weight in each of many resamples, which is drawn from a Poisson distribution of mean 1 under the
utterance's own name (Hanley & MacGibbon 2006). The weighted sums of batches and processes can be added, and neither the
order of the utterances nor their batches change an interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

from zoo.data.loader import hash_seed
from zoo.text import Score

RESAMPLES = 1000
COVERED = 0.95
"""Share of the resamples whose scores lie in an interval."""


def resample(id: str, sums: Sequence[float]) -> Float[Tensor, "resamples+1 sums"]:
    """Returns the sums of an utterance, and below them its sums in each resample."""
    generator = torch.Generator().manual_seed(hash_seed("resample", id))
    weights = torch.ones(RESAMPLES + 1, 1, dtype=torch.float64)
    weights[1:] = torch.poisson(weights[1:], generator=generator)
    return weights * torch.tensor(sums, dtype=torch.float64)


def interval(score: Score, name: str, totals: Float[Tensor, "resamples+1 sums"]) -> tuple[float, float]:
    """Returns the limits of the scores of most resamples; NaN if none has a score."""
    found = torch.tensor([score.compute(sums)[name] for sums in totals[1:].tolist()], dtype=torch.float64)
    found = found[found.isfinite()]
    if not len(found):
        return math.nan, math.nan
    outside = (1 - COVERED) / 2
    low, high = found.quantile(torch.tensor([outside, 1 - outside], dtype=torch.float64)).tolist()
    return low, high


class Limit(Metric):
    """One limit of the interval of a corpus score.

    Args:
        score: The score.
        name: Name of the figure of the score.
        upper: Whether this is the upper limit.
    """

    full_state_update = False
    sums: Tensor

    def __init__(self, score: Score, name: str, *, upper: bool) -> None:
        super().__init__()
        self.score, self.name, self.upper = score, name, upper
        self.add_state("sums", torch.zeros(RESAMPLES + 1, score.size, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, sums: Float[Tensor, "resamples+1 sums"]) -> None:
        self.sums += sums.to(self.sums.device)

    def compute(self) -> Tensor:
        return torch.tensor(interval(self.score, self.name, self.sums.cpu())[self.upper], dtype=torch.float64).float()
