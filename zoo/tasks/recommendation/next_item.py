"""Next-item prediction, the task of SASRec: each position of a history learns the item that follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo import distributed
from zoo.attention import record
from zoo.attention.recording.recorder import Recording
from zoo.errors import ConfigError
from zoo.nn.packing import Packing
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Invariance
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.maps.attributions import How, influence, refusal
from zoo.tasks.recommendation.maps.recorded_forward import NOT_RECORDED, HistoryPass, RecordedPass
from zoo.tasks.recommendation.models.sasrec import SASRec
from zoo.tasks.recommendation.predictions import recommend
from zoo.tasks.recommendation.ranking.protocol import Protocol
from zoo.tasks.recommendation.task import Recommender
from zoo.types import PositiveInt, validate_ranges


@validate_ranges
class NextItemTask(Recommender):
    """Each position of a history learns the item that follows it (Kang & McAuley 2018, section III-F).

    Args:
        net: `(items, length) -> SASRec`.
        optimization: Optimizer, schedule, frozen layers and rates.
        items, length: Number of items and length of a window, from the data.
        loss: Loss of hidden states and the items that follow them: see `losses`.
        protocol: Protocol of ranking in an evaluation.
        explain: Method of the scored map: see `maps.scored`. Default: attention of the last layer, or no map if that
            layer has no weights.
    """

    def __init__(
        self,
        *,
        net: Callable[..., SASRec],
        optimization: OptimizerConfig,
        items: PositiveInt,
        length: PositiveInt,
        loss: nn.Module,
        protocol: Protocol,
        explain: How | None = None,
    ) -> None:
        made = net(items=items, length=length)
        why_not = refusal(made, -1 if explain is None else explain)
        if why_not and explain is not None:
            raise ConfigError(f"model.explain={explain}: {why_not}")
        how: How | None = None if why_not else -1 if explain is None else explain
        super().__init__(optimization=optimization, items=items, protocol=protocol, explain=how)
        self.net: SASRec = made
        self.loss = loss

    def forward(self, batch: SequenceBatch) -> Float[Tensor, "n d"]:
        hidden: Tensor = self.net(batch)
        return hidden

    def training_step(self, batch: SequenceBatch, batch_idx: int) -> Tensor:
        hidden = self(batch)
        known = batch.targets >= 0
        targets, users = batch.targets, batch.users
        if not bool(known.all()):
            rows = known.nonzero().squeeze(1)
            hidden, targets, users = hidden[rows], targets[rows], users[rows]
        total = self.loss(hidden, targets, self.net.items.weight, users, batch)
        loss = distributed.mean_loss(total, len(targets))
        self.log_training({"train/loss": loss}, len(targets))
        return loss

    def encode(self, batch: SequenceBatch) -> Float[Tensor, "b d"]:
        return self.net.last(batch)

    def score(self, user: Float[Tensor, "b d"], items: Int[Tensor, " i"]) -> Float[Tensor, "b i"]:
        return self.net.scores(user, items)

    def influence(self, batch: SequenceBatch) -> Float[Tensor, " n"]:
        assert self.how is not None
        return influence(self.net, batch, self.how)

    def asked_about(self, batch: SequenceBatch) -> Int[Tensor, " b"]:
        """Returns the item that is recommended first."""
        return recommend(self, batch, 1).top[:, 0].clamp(min=0)

    def log_probability(self, batch: SequenceBatch, items: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        """Computes the log softmax over all items; only cross-entropy calibrates it."""
        scores = self.score(self.encode(batch), torch.arange(self.item_count, device=items.device))
        return scores.double().log_softmax(-1).gather(1, items[:, None])[:, 0]

    def groups(self, batch: SequenceBatch) -> list[list[int]]:
        return [list(group.sequences) for group in Packing(batch.lengths, causal=True).groups]

    def record_pass(
        self, batch: SequenceBatch, count: int = 0, also: AbstractContextManager[Recording | None] = NOT_RECORDED
    ) -> RecordedPass:
        with torch.no_grad(), also as written, record(self.net, implied=True) as found:
            hidden = self.net(batch)
        user = hidden[batch.last]
        top = recommend(self, batch, count, user=user).top if count else batch.items.new_zeros(len(batch), 0)
        return HistoryPass(self.net, batch, user, top, found, written)

    def invariants(self, batch: SequenceBatch) -> Sequence[Invariance]:
        """The output at a position depends only on its user's items up to this position."""
        if self.item_count < 2:
            return ()
        other = (batch.items + 1) % self.item_count
        first = torch.arange(len(batch.items), device=batch.items.device) == batch.last[0]
        found = []
        if len(batch) > 1:
            elsewhere = replace(batch, items=torch.where(batch.users == 0, batch.items, other))
            found.append(Invariance("other users of the batch", elsewhere, lambda out: out[batch.users == 0]))
        if batch.lengths[0] > 1:
            later = replace(batch, items=torch.where(first, other, batch.items))
            found.append(Invariance("later items", later, lambda out: out[: batch.last[0]]))
        return found

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Returns the parameter with one row for each item; fine-tuning matches items by id."""
        return {"items": {"net.items.weight": 0}}

    def resize_parameter(self, name: str, old: Tensor, shape: torch.Size) -> Tensor | None:
        """Fits learned positions to a longer or shorter window."""
        return self.net.resize_parameter(name.removeprefix("net."), old)
