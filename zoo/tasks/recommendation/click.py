"""Will this user choose this candidate? DIN's task: binary cross-entropy over what was chosen and what was not."""

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

from zoo.attention import record
from zoo.attention.observing.record import Recording
from zoo.attention.ranges import Count
from zoo.errors import ConfigError
from zoo.tasks.contract import Invariance
from zoo.tasks.recommendation.answers import recommended
from zoo.tasks.recommendation.batch import Histories
from zoo.tasks.recommendation.maps.looks import UNASKED, CandidateLook, Look, candidate_shares
from zoo.tasks.recommendation.nets.din import DIN, Candidates, after_histories
from zoo.tasks.recommendation.ranking.protocol import Protocol
from zoo.tasks.recommendation.ranking.ranks import Ranked
from zoo.tasks.recommendation.recommender import Recommender
from zoo.tasks.recommendation.sampling import Unseen
from zoo.training import ranks
from zoo.training.optimisation import Optimisation


class CandidateRanker(Recommender):
    """The chosen item against sampled ones, each with the history before the choice; ranking as of any recommender.

    AUC and log loss are of the held-out items and as many negatives for each as in training, the same in every epoch;
    gauc is the mean of the users' own AUCs (Zhou et al. 2018, section 6.3; all users have as many candidates here). The
    best weights are chosen by AUC: it is the paper's metric, and costs a few candidates for each user, where ranking
    costs items x histories. Validation ranks nothing; with a protocol that samples the test makes no lists.

    Args:
        net: `items -> DIN`.
        optimisation: Optimiser, schedule, frozen layers and rates.
        items, length: From the data; the net takes histories of any length.
        protocol: Among which items the held-out one is ranked in the test.
        targets: Choices of each user that are learned in an epoch, drawn at random; None: all of them, which costs the
            square of a history's length.
        negatives: Items that the user has not chosen, for each choice.
    """

    primary = "val/auc"
    primary_mode = "max"
    headline = ("auc", "log_loss", "ndcg@10", "hr@10")

    def __init__(
        self,
        *,
        net: Callable[..., DIN],
        optimisation: Optimisation,
        items: Count,
        length: Count,
        protocol: Protocol,
        targets: Count | None = 16,
        negatives: Count = 4,
    ) -> None:
        if targets is not None and targets < 1:
            raise ConfigError(f"model.targets={targets}: write 1 or more, or null for all")
        if negatives < 1:
            raise ConfigError(f"model.negatives={negatives}: write 1 or more")
        super().__init__(optimisation=optimisation, items=items, protocol=protocol, explain=0)
        self.net = net(items=items)
        self.targets = targets
        self.negatives = negatives
        self.judging = Protocol(negatives=negatives, seed=protocol.seed)
        self.test_ranks = protocol.metrics(items, lists=protocol.negatives is None)
        self.val_clicks, self.test_clicks = ClickMetrics(), ClickMetrics()

    def forward(self, batch: Histories) -> Float[Tensor, " b"]:
        """The logit of what each user chose after its history; of any item where that is not known."""
        found: Tensor = self.net(batch, after_histories(batch, batch.held_out.clamp(min=0)[:, None]))
        return found

    def training_step(self, batch: Histories, batch_idx: int) -> Tensor:
        candidates = drawn(batch, targets=self.targets, negatives=self.negatives)
        count = len(candidates.items)
        logits = self.net(batch, candidates) if count else self.net.items.weight[:0, 0]
        labels = torch.zeros_like(logits)
        labels[:: 1 + self.negatives] = 1.0
        loss = ranks.mean_loss(F.binary_cross_entropy_with_logits(logits, labels, reduction="sum"), count)
        self.log("train/loss", loss, on_step=True, on_epoch=False, batch_size=count, sync_dist=ranks.world() > 1)
        return loss

    def validation_step(self, batch: Histories, batch_idx: int) -> None:
        self._judge("val", self.val_clicks, batch)

    def on_validation_epoch_end(self) -> None:
        """Nothing was ranked."""

    def test_step(self, batch: Histories, batch_idx: int) -> None:
        super().test_step(batch, batch_idx)
        self._judge("test", self.test_clicks, batch)

    def user(self, batch: Histories) -> Histories:
        """A candidate is needed before anything can be said of a user."""
        return batch

    def score(self, user: Histories, items: Int[Tensor, " i"]) -> Float[Tensor, "b i"]:
        return self.among(user, items[None])

    def among(self, batch: Histories, items: Int[Tensor, "#b k"]) -> Float[Tensor, "b k"]:
        found: Tensor = self.net.scores(batch, items)
        return found

    def ranked(self, batch: Histories, *, lists: bool = True, user: Any = None) -> Ranked:
        return self.ranking.rank(partial(self.score, batch), batch, own=partial(self.among, batch), lists=lists)

    def predicted(self, batch: Histories, found: Ranked) -> dict[str, list[Any]]:
        """As of any recommender; the probability is that of the choice against sampled items."""
        columns = super().predicted(batch, found)
        return {**columns, "probability": torch.tensor(columns["score"]).sigmoid().tolist()}

    def influence(self, batch: Histories) -> Float[Tensor, " n"]:
        """By the weights that the held-out item has for the history, or the best item where none is held out."""
        items = batch.held_out
        if bool((items < 0).any()):
            items = self._wanted(batch, recommended(self, batch, 1).top)
        return self.weights(batch, items[:, None])[:, 0]

    def weights(self, batch: Histories, items: Int[Tensor, "b k"]) -> Float[Tensor, "n k"]:
        """Of each position, its share in the attention of each of its user's items."""
        with torch.no_grad(), record(self.net) as found:
            self.net(batch, after_histories(batch, items))
        return candidate_shares(found, batch, items.shape[1])

    def together(self, batch: Histories) -> list[list[int]]:
        return [list(range(len(batch)))]

    def look(self, batch: Histories, count: int = 0, also: AbstractContextManager[Recording | None] = UNASKED) -> Look:
        """The last candidate of each user is the one of `influence`, those before it the best, one or more."""
        top = recommended(self, batch, max(count, 1)).top
        items = torch.cat([top.clamp(min=0), self._wanted(batch, top)[:, None]], 1)
        with torch.no_grad(), also as written, record(self.net) as found:
            self.net(batch, after_histories(batch, items))
        return CandidateLook(self.net, batch, batch, top, found, written)

    def _wanted(self, batch: Histories, top: Int[Tensor, "b k"]) -> Int[Tensor, " b"]:
        """The held-out item of each user, or the best one where none is held out."""
        return batch.held_out.where(batch.held_out >= 0, top[:, 0].clamp(min=0))

    def invariants(self, batch: Histories) -> Sequence[Invariance]:
        """The output of a user depends on no other user."""
        if len(batch) < 2 or self.item_count < 2:
            return ()
        elsewhere = replace(
            batch, items=torch.where(batch.users == 0, batch.items, (batch.items + 1) % self.item_count)
        )
        return (Invariance("other users of the batch", elsewhere, lambda out: out[:1]),)

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Items are matched by their ids."""
        return {"items": {"net.items.weight": 0, "net.bias.weight": 0}}

    def _judge(self, split: str, metrics: ClickMetrics, batch: Histories) -> None:
        """AUC and log loss of the users with a held-out item."""
        known = batch.held_out >= 0
        if not bool(known.any()):
            return
        others = self.judging.candidates(batch)
        wanted = batch.held_out.clamp(min=0)[:, None]
        logits = self.among(batch, torch.cat([wanted, others], 1))[known]
        metrics.update(logits[:, 0], logits[:, 1:], (others != wanted)[known])
        named = {f"{split}/{name}": metric for name, metric in metrics.named().items()}
        self.log_dict(named, on_step=False, on_epoch=True, batch_size=len(logits))


class ClickMetrics(nn.Module):
    """auc over all candidates of all users, gauc, the mean of each user's own, and log_loss."""

    def __init__(self) -> None:
        super().__init__()
        self.auc = BinaryAUROC()
        self.gauc, self.log_loss = ranks.MeanOfTargets(), ranks.MeanOfTargets()

    def update(self, chosen: Float[Tensor, " b"], others: Float[Tensor, "b c"], real: Bool[Tensor, "b c"]) -> None:
        """Logits of what each user chose and of the others; those that are not `real` do not count."""
        wins = (chosen[:, None] > others).double() + 0.5 * (chosen[:, None] == others)
        counts = real.sum(1)
        self.gauc.update(((wins * real).sum(1) / counts)[counts > 0])
        logits = torch.cat([chosen, others[real]]).double()
        labels = torch.zeros_like(logits)
        labels[: len(chosen)] = 1.0
        # As probabilities: torchmetrics takes a batch of logits that happen to lie between 0 and 1 for such.
        self.auc.update(logits.sigmoid(), labels.long())
        self.log_loss.update(F.binary_cross_entropy_with_logits(logits, labels, reduction="none"))

    def named(self) -> dict[str, Metric]:
        return {"auc": self.auc, "gauc": self.gauc, "log_loss": self.log_loss}


def drawn(batch: Histories, *, targets: int | None, negatives: int) -> Candidates:
    """The examples of a step: chosen items and, for each of them, items that its user has not chosen.

    Candidates of one choice stand side by side, the chosen item first; their history is what came before the choice.

    Args:
        targets: Choices of each user, drawn without replacement; None takes all.
        negatives: For each choice, with replacement.
    """
    positions = _positions(batch, targets)
    users = batch.users[positions]
    items = torch.cat([batch.targets[positions, None], Unseen.of(batch).draw(users, negatives)], 1)
    starts, stops = (x.repeat_interleave(1 + negatives) for x in (batch.starts[users], positions + 1))
    return Candidates(items.flatten(), starts, stops)


def _positions(batch: Histories, targets: int | None) -> Int[Tensor, " m"]:
    """Of the positions with a target: all, or so many of each user's that has more."""
    positions = (batch.targets >= 0).nonzero().squeeze(1)
    if targets is None:
        return positions
    users = batch.users[positions]
    order = (users + torch.rand(len(users), dtype=torch.float64, device=users.device)).argsort()
    counts = torch.bincount(users, minlength=len(batch))
    place = torch.arange(len(users), device=users.device) - (counts.cumsum(0) - counts)[users]
    return positions[order[place < targets]].sort().values
