"""Histories without some of their items, which are replaced as in `scored.occlusion`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.maps.perturbation import Perturbable, gradient_at_rows
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.maps.attributions import ROWS, copies_of, leave_out

if TYPE_CHECKING:
    from zoo.tasks.recommendation.task import Recommender


class PerturbableHistory(Perturbable):
    """A user whose inputs are past items. Probabilities are means over the replacements.

    Args:
        module: Recommender.
        batch: Batch of one user.
    """

    noun = "item"
    max_size = ROWS

    def __init__(self, module: Recommender, batch: SequenceBatch) -> None:
        self.module = module
        self.attention = module.explain(batch).weights[0, 0, 0]
        with torch.no_grad():
            self.answer = module.asked_about(batch)
        self.batch = copies_of(batch, torch.zeros(1, dtype=torch.int64, device=batch.items.device))
        self.size = len(self.batch.items)

    def score_batch(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        copies = copies_of(self.batch, torch.zeros(len(keep), dtype=torch.int64, device=keep.device))
        replaced = leave_out(copies, keep.flatten())
        scores = [self.module.log_probability(each, self.answer.expand(len(keep))).exp() for each in replaced]
        return torch.stack(scores).mean(0)

    def gradient(self) -> Float[Tensor, " n"]:
        return gradient_at_rows(
            lambda: self.module.log_probability(self.batch, self.answer).sum(), self.module.net.items, self.batch.items
        )
