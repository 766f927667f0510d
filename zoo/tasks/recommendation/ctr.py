"""Click prediction, the task of DIN: binary cross-entropy of chosen items and sampled items that were not chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import BinaryAUROC

from zoo import distributed
from zoo.attention import record
from zoo.attention.recording.recorder import Recording
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Invariance
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.maps.recorded_forward import NOT_RECORDED, CandidatePass, RecordedPass, candidate_shares
from zoo.tasks.recommendation.models.din import DIN, Candidates, make_candidates
from zoo.tasks.recommendation.predictions import recommend
from zoo.tasks.recommendation.ranking.protocol import Protocol
from zoo.tasks.recommendation.ranking.ranks import Ranked
from zoo.tasks.recommendation.sampling import NegativeSampler
from zoo.tasks.recommendation.task import Recommender
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class CTRTask(Recommender):
    """Learns to tell chosen items from sampled ones, each with the history before the choice.

    AUC and log loss are measured on the held-out items, with as many negatives for each as in training, the same in
    every epoch. gauc is the mean of the AUCs of single users (Zhou et al. 2018, section 6.3; all users have equally
    many candidates here). The best weights are chosen by AUC, the metric of the paper: it needs a few candidates for
    each user, where ranking scores all items with all histories. Validation does not rank. If the protocol samples
    negatives, the test makes no lists of recommendations.

    Args:
        net: `items -> DIN`.
        optimization: Optimizer, schedule, frozen layers and rates.
        items, length: Number of items and length of a window, from the data; the net takes histories of any length.
        protocol: Protocol of ranking in the test.
        targets: Number of choices of each user that an epoch learns, drawn at random. None learns all, at a cost that
            is quadratic in the length of a history.
        negatives: Number of items that the user has not chosen, for each choice.
    """

    primary = "val/auc"
    primary_mode = "max"
    headline = ("auc", "log_loss", "ndcg@10", "hr@10")

    def __init__(
        self,
        *,
        net: Callable[..., DIN],
        optimization: OptimizerConfig,
        items: PositiveInt,
        length: PositiveInt,
        protocol: Protocol,
        targets: PositiveInt | None = 16,
        negatives: PositiveInt = 4,
    ) -> None:
        super().__init__(optimization=optimization, items=items, protocol=protocol, explain=0)
        self.net = net(items=items)
        self.targets = targets
        self.negatives = negatives
        self.click_protocol = Protocol(negatives=negatives, seed=protocol.seed)
        self.test_ranks = protocol.metrics(items, lists=protocol.negatives is None)
        self.val_clicks, self.test_clicks = ClickMetrics(), ClickMetrics()

    def forward(self, batch: SequenceBatch) -> Float[Tensor, " b"]:
        """Returns the logit of each user's held-out item; the logit of item 0 if there is none."""
        found: Tensor = self.net(batch, make_candidates(batch, batch.held_out.clamp(min=0)[:, None]))
        return found

    def training_step(self, batch: SequenceBatch, batch_idx: int) -> Tensor:
        candidates = sample_candidates(batch, targets=self.targets, negatives=self.negatives)
        count = len(candidates.items)
        logits = self.net(batch, candidates) if count else self.net.items.weight[:0, 0]
        labels = torch.zeros_like(logits)
        labels[:: 1 + self.negatives] = 1.0
        loss = distributed.mean_loss(F.binary_cross_entropy_with_logits(logits, labels, reduction="sum"), count)
        self.log_training({"train/loss": loss}, count)
        return loss

    def validation_step(self, batch: SequenceBatch, batch_idx: int) -> None:
        self._update_clicks("val", self.val_clicks, batch)

    def on_validation_epoch_end(self) -> None:
        """Does nothing: validation does not rank."""

    def test_step(self, batch: SequenceBatch, batch_idx: int) -> None:
        super().test_step(batch, batch_idx)
        self._update_clicks("test", self.test_clicks, batch)

    def encode(self, batch: SequenceBatch) -> SequenceBatch:
        """Returns the batch: a user has no representation before there is a candidate."""
        return batch

    def score(self, user: SequenceBatch, items: Int[Tensor, " i"]) -> Float[Tensor, "b i"]:
        return self.score_own(user, items[None])

    def score_own(self, batch: SequenceBatch, items: Int[Tensor, "#b k"]) -> Float[Tensor, "b k"]:
        found: Tensor = self.net.scores(batch, items)
        return found

    def rank(self, batch: SequenceBatch, *, lists: bool = True, user: Any = None) -> Ranked:
        return self.ranking.rank(partial(self.score, batch), batch, own=partial(self.score_own, batch), lists=lists)

    def predict_columns(self, batch: SequenceBatch, found: Ranked) -> dict[str, list[Any]]:
        """Adds the probability of the best item, learned against sampled items, to the columns of a recommender."""
        columns = super().predict_columns(batch, found)
        return {**columns, "probability": torch.tensor(columns["score"]).sigmoid().tolist()}

    def influence(self, batch: SequenceBatch) -> Float[Tensor, " n"]:
        """Returns each position's share in the attention of the held-out item, or of the best item if there is none."""
        items = batch.held_out
        if bool((items < 0).any()):
            items = self._choose_items(batch, recommend(self, batch, 1).top)
        return self.weights(batch, items[:, None])[:, 0]

    def weights(self, batch: SequenceBatch, items: Int[Tensor, "b k"]) -> Float[Tensor, "n k"]:
        """Returns the share of each position in the attention of each of its user's items."""
        with torch.no_grad(), record(self.net) as found:
            self.net(batch, make_candidates(batch, items))
        return candidate_shares(found, batch, items.shape[1])

    def asked_about(self, batch: SequenceBatch) -> Int[Tensor, " b"]:
        return self._choose_items(batch, recommend(self, batch, 1).top)

    def log_probability(self, batch: SequenceBatch, items: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        """Computes the log probability that the user chooses the item."""
        logits: Tensor = self.net(batch, make_candidates(batch, items[:, None]))
        return F.logsigmoid(logits.double())

    def groups(self, batch: SequenceBatch) -> list[list[int]]:
        return [list(range(len(batch)))]

    def record_pass(
        self, batch: SequenceBatch, count: int = 0, also: AbstractContextManager[Recording | None] = NOT_RECORDED
    ) -> RecordedPass:
        """Records a pass with each user's best items as candidates, followed by the candidate of `influence`."""
        top = recommend(self, batch, max(count, 1)).top
        items = torch.cat([top.clamp(min=0), self._choose_items(batch, top)[:, None]], 1)
        with torch.no_grad(), also as written, record(self.net) as found:
            self.net(batch, make_candidates(batch, items))
        return CandidatePass(self.net, batch, batch, top, found, written)

    def _choose_items(self, batch: SequenceBatch, top: Int[Tensor, "b k"]) -> Int[Tensor, " b"]:
        """Returns the held-out item of each user, or the best item if there is none."""
        return batch.held_out.where(batch.held_out >= 0, top[:, 0].clamp(min=0))

    def invariants(self, batch: SequenceBatch) -> Sequence[Invariance]:
        """The output for a user does not depend on other users."""
        if len(batch) < 2 or self.item_count < 2:
            return ()
        elsewhere = replace(
            batch, items=torch.where(batch.users == 0, batch.items, (batch.items + 1) % self.item_count)
        )
        return (Invariance("other users of the batch", elsewhere, lambda out: out[:1]),)

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Returns the parameters with one row for each item; fine-tuning matches items by id."""
        return {"items": {"net.items.weight": 0, "net.bias.weight": 0}}

    def _update_clicks(self, split: str, metrics: ClickMetrics, batch: SequenceBatch) -> None:
        """Updates and logs the metrics, with the users who have a held-out item."""
        known = batch.held_out >= 0
        if not bool(known.any()):
            return
        others = self.click_protocol.candidates(batch)
        wanted = batch.held_out.clamp(min=0)[:, None]
        logits = self.score_own(batch, torch.cat([wanted, others], 1))[known]
        metrics.update(logits[:, 0], logits[:, 1:], (others != wanted)[known])
        named = {f"{split}/{name}": metric for name, metric in metrics.to_dict().items()}
        self.log_evaluation(named, len(logits))


class ClickMetrics(nn.Module):
    """Three metrics: auc over the candidates of all users, gauc, the mean of the users' own AUCs, and log_loss."""

    def __init__(self) -> None:
        super().__init__()
        self.auc = BinaryAUROC()
        self.gauc, self.log_loss = distributed.GlobalMean(), distributed.GlobalMean()

    def update(self, chosen: Float[Tensor, " b"], others: Float[Tensor, "b c"], real: Bool[Tensor, "b c"]) -> None:
        """Adds a batch.

        Args:
            chosen: Logit of the item that each user chose.
            others: Logits of the user's other candidates.
            real: Mask of the other candidates that count.
        """
        wins = (chosen[:, None] > others).double() + 0.5 * (chosen[:, None] == others)
        counts = real.sum(1)
        self.gauc.update(((wins * real).sum(1) / counts)[counts > 0])
        logits = torch.cat([chosen, others[real]]).double()
        labels = torch.zeros_like(logits)
        labels[: len(chosen)] = 1.0
        # Probabilities, since torchmetrics would take a batch of logits that are all between 0 and 1 for probabilities.
        self.auc.update(logits.sigmoid(), labels.long())
        self.log_loss.update(F.binary_cross_entropy_with_logits(logits, labels, reduction="none"))

    def to_dict(self) -> dict[str, Metric]:
        return {"auc": self.auc, "gauc": self.gauc, "log_loss": self.log_loss}


def sample_candidates(batch: SequenceBatch, *, targets: int | None, negatives: int) -> Candidates:
    """Draws the candidates of a training step: chosen items, and for each of them items that its user has not chosen.

    The candidates of one choice are adjacent, with the chosen item first. Their history is the part before the choice.

    Args:
        targets: Number of choices of each user, drawn without replacement. None takes all.
        negatives: Number of negatives for each choice, drawn with replacement.
    """
    positions = _positions(batch, targets)
    users = batch.users[positions]
    items = torch.cat([batch.targets[positions, None], NegativeSampler.from_batch(batch).draw(users, negatives)], 1)
    starts, stops = (x.repeat_interleave(1 + negatives) for x in (batch.starts[users], positions + 1))
    return Candidates(items.flatten(), starts, stops)


def _positions(batch: SequenceBatch, targets: int | None) -> Int[Tensor, " m"]:
    """Returns the positions with a target, at most `targets` of each user, drawn at random."""
    positions = (batch.targets >= 0).nonzero().squeeze(1)
    if targets is None:
        return positions
    users = batch.users[positions]
    order = (users + torch.rand(len(users), dtype=torch.float64, device=users.device)).argsort()
    counts = torch.bincount(users, minlength=len(batch))
    rank = torch.arange(len(users), device=users.device) - (counts.cumsum(0) - counts)[users]
    return positions[order[rank < targets]].sort().values
