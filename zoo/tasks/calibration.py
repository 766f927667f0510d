"""Calibration: the difference between confidence and accuracy."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torchmetrics import Metric


class CalibrationError(Metric):
    """Expected calibration error (Guo et al. 2017, eq. 3): sum_m |B_m| / n |acc(B_m) - conf(B_m)|.

    The state is the sums of each bin, so that memory does not grow with the number of examples, and the sums of several
    processes add up exactly. (torchmetrics stores every confidence.)

    Args:
        bins: M, the number of bins of equal width.
    """

    full_state_update = False
    count: Tensor
    correct: Tensor
    confidence: Tensor

    def __init__(self, *, bins: int = 15) -> None:
        super().__init__()
        self.bins = bins
        self.add_state("count", torch.zeros(bins, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("correct", torch.zeros(bins, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("confidence", torch.zeros(bins, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, logits: Float[Tensor, "b classes"], labels: Int[Tensor, " b"]) -> None:
        confidence, predicted = logits.float().softmax(-1).max(-1)
        # bins are open on the left: ((m - 1) / M, m / M]
        index = ((confidence * self.bins).ceil().long() - 1).clamp(0, self.bins - 1)
        self.count += torch.bincount(index, minlength=self.bins)
        self.correct += torch.bincount(index[predicted == labels], minlength=self.bins)
        self.confidence.index_add_(0, index, confidence.double())

    def compute(self) -> Tensor:
        gaps = (self.correct - self.confidence).abs()
        return (gaps.sum() / self.count.sum()).float()
