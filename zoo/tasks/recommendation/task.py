"""The base class of recommenders: evaluation, predictions, and the scored map."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo import distributed
from zoo.attention import AttentionMap
from zoo.attention.recording.recorder import Recording
from zoo.errors import ConfigError
from zoo.maps.metrics import pointing
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Task
from zoo.tasks.baselines import Baseline
from zoo.tasks.command_options import CommandOption
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.maps.attributions import How, gold_positions, group_by_user, map_name, occlude
from zoo.tasks.recommendation.maps.recorded_forward import NOT_RECORDED, RecordedPass
from zoo.tasks.recommendation.predictions import TOP, answers, check_explain, recommend
from zoo.tasks.recommendation.ranking.protocol import Protocol
from zoo.tasks.recommendation.ranking.ranks import Ranked

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.recommendation.datamodule import HistoryData
    from zoo.tasks.recommendation.explanation import UserExplainer


class Recommender(Task):
    """Ranks the item that a user chose next among other items.

    The metrics are hit rate, NDCG, mean reciprocal rank and coverage, and those of a ranking by popularity. If the
    protocol samples negatives, the metrics of full ranking are reported too (`full_hr@10`), as far as lists are made.

    Args:
        optimization: Optimizer, schedule, frozen layers and rates.
        items: Number of items, from the data.
        protocol: Protocol of ranking in an evaluation.
        explain: Method of the scored map: see `maps.compute_scored_map`. None: no map.
    """

    primary = "val/ndcg@10"
    primary_mode = "max"
    headline = ("ndcg@10", "hr@10", "mrr", "popularity_ndcg@10")
    net: Any
    """The net; its attribute `items` is the embedding of items."""

    def __init__(self, *, optimization: OptimizerConfig, items: int, protocol: Protocol, explain: How | None) -> None:
        super().__init__(optimization=optimization)
        self.item_count = items
        if 10 not in protocol.ks:
            raise ConfigError(f"model.protocol.ks={list(protocol.ks)}: add 10, by which the best weights are chosen")
        self.ranking = protocol
        self.how = explain
        self.val_ranks = protocol.metrics(items, ks=(10,), lists=False)
        self.test_ranks = protocol.metrics(items)
        self.test_popularity = protocol.metrics(items, lists=False)
        self.test_all = replace(protocol, negatives=None).metrics(items, lists=False)
        self.pointing = distributed.GlobalMean()

    @abstractmethod
    def encode(self, batch: SequenceBatch) -> Any:
        """Computes the representation of users from which scores are computed, once for a batch."""

    @abstractmethod
    def score(self, user: Any, items: Int[Tensor, " i"]) -> Float[Tensor, "b i"]:
        """Computes each user's scores of these items; a higher score means a more likely choice."""

    @abstractmethod
    def influence(self, batch: SequenceBatch) -> Float[Tensor, " n"]:
        """Computes the share of each position in the prediction of its user's next item, by attention."""

    @abstractmethod
    def groups(self, batch: SequenceBatch) -> list[list[int]]:
        """Divides the users of a batch into groups for `record_pass`, whose memory is that of one group's maps."""

    @abstractmethod
    def record_pass(
        self, batch: SequenceBatch, count: int = 0, also: AbstractContextManager[Recording | None] = NOT_RECORDED
    ) -> RecordedPass:
        """Records the attention of a pass over one of the `groups`, and recommends items to each user.

        Args:
            batch: The users of one group.
            count: Minimum number of recommended items.
            also: A second recording of the same pass, for example of other sites.
        """

    @abstractmethod
    def asked_about(self, batch: SequenceBatch) -> Int[Tensor, " b"]:
        """Returns the item of each user that the scored map explains."""

    @abstractmethod
    def log_probability(self, batch: SequenceBatch, items: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        """Computes the log probability of one item for each user in float64."""

    def weights(self, batch: SequenceBatch, items: Int[Tensor, "b k"]) -> Float[Tensor, "n k"]:
        """Computes the share of each position in the score of each of its user's items, by attention.

        Here the shares are the same for all items.
        """
        return self.influence(batch)[:, None].expand(-1, items.shape[1])

    def score_own(self, batch: SequenceBatch, items: Int[Tensor, "b k"]) -> Float[Tensor, "b k"]:
        """Computes the scores of items that differ from user to user."""
        distinct, which = torch.unique(items, return_inverse=True)
        return self.score(self.encode(batch), distinct).gather(1, which)

    def validation_step(self, batch: SequenceBatch, batch_idx: int) -> None:
        self.val_ranks.update(self.rank(batch, lists=False).ranks)

    def on_validation_epoch_end(self) -> None:
        self.log_computed(self.val_ranks, "val/")

    def test_step(self, batch: SequenceBatch, batch_idx: int) -> None:
        """Updates all metrics with a batch of any split; the evaluation renames them after the split."""
        ranked = self.rank(batch, lists=self.test_ranks.lists)
        self.test_ranks.update(ranked.ranks, ranked.top)
        if ranked.among_all is not None:
            self.test_all.update(ranked.among_all)
        self.test_popularity.update(self.ranking.popularity(batch))
        gold = gold_positions(batch)
        if gold is not None and self.how is not None:
            found = self.explain(batch).weights[:, 0, 0]
            belongs = group_by_user(gold.float(), batch, "gold").weights[:, 0, 0] > 0
            self.pointing.update(pointing(found, belongs))
            self.log_evaluation({"truth/pointing_accuracy": self.pointing}, len(batch))

    def on_test_epoch_end(self) -> None:
        self.log_computed(self.test_ranks, "test/")
        self.log_computed(self.test_popularity, "test/popularity_")
        if self.ranking.negatives is not None and self.test_ranks.lists:
            self.log_computed(self.test_all, "test/full_")

    def explain(self, batch: SequenceBatch) -> AttentionMap:
        """Computes the scored map: one query for each user, the next item; the keys are the history, oldest first."""
        if self.how is None:
            raise ConfigError("this model has no map to score: its attention has no weights")
        return group_by_user(self.shares(batch), batch, map_name(self.how, self.net))

    def shares(self, batch: SequenceBatch) -> Float[Tensor, " n"]:
        """Computes the share of each position in the prediction of the next item, as in the scored map."""
        if self.how == "occlusion":
            return occlude(self.score_own, batch, recommend(self, batch, 1).top.clamp(min=0))
        return self.influence(batch)

    def compute_scored_map(self, recorded: RecordedPass) -> Float[Tensor, " n"] | None:
        """Computes the shares of the scored map from a recorded pass; None if the model has no map.

        Occlusion needs further passes, with items replaced.
        """
        if self.how is None:
            return None
        if self.how == "occlusion":
            best = recommend(self, recorded.batch, 1, user=recorded.user).top
            return occlude(self.score_own, recorded.batch, best.clamp(min=0))
        return recorded.shares(self.how)

    def maps(self, data: HistoryData, options: MapOptions) -> UserExplainer:
        from zoo.tasks.recommendation.explanation import UserExplainer

        return UserExplainer(self, data, options)

    predict_options = (
        CommandOption(name="top", kind=int, metavar="N", help=f"the N best items for each user; default: {TOP}"),
        CommandOption(
            name="explain",
            bare="",
            metavar="HOW",
            help="explain each recommendation by occlusion; --explain=attention: by attention",
        ),
        CommandOption(name="seen", kind=None, help="recommend also items that the user has chosen before"),
    )

    def predictor(
        self, *, top: int | None = None, explain: str | None = None, seen: bool = False
    ) -> Callable[[Any], dict[str, list[Any]]]:
        """Returns the function that `zoo predict` applies to batches: see `answers`."""
        if top is not None and top < 1:
            raise ConfigError(f"--top={top}: write 1 or more")
        why = check_explain(explain, has_attention=self.how not in (None, "occlusion"))
        return lambda batch: answers(self, batch, top=TOP if top is None else top, why=why, seen=seen)

    @property
    def answer_column(self) -> str:
        return "item"

    @property
    def reference_column(self) -> str:
        return "held_out"

    def predict_step(self, batch: SequenceBatch, batch_idx: int = 0) -> dict[str, list[Any]]:
        """Returns columns with one entry for each user; `loss` is the rank of the held-out item, or None."""
        return self.predict_columns(batch, self.rank(batch))

    def predict_columns(self, batch: SequenceBatch, found: Ranked) -> dict[str, list[Any]]:
        """Returns the columns of `predict_step`."""
        names = [batch.catalogue.names[item] if item >= 0 else "" for item in found.top[:, 0].tolist()]
        held_out = batch.held_out.tolist()
        return {
            "id": list(batch.ids),
            "split": list(batch.splits),
            "label": [batch.catalogue.names[item] if item >= 0 else "" for item in held_out],
            "prediction": names,
            "score": found.scores[:, 0].tolist(),
            "loss": [rank if rank >= 0 else None for rank in found.ranks.tolist()],
        }

    def protocol(self) -> str:
        """Returns the protocol of the test metrics as a phrase."""
        described = self.ranking.describe(self.item_count)
        if self.ranking.negatives is None or not self.test_ranks.lists:
            return described
        return f"{described}; full_: {replace(self.ranking, negatives=None).describe(self.item_count)}"

    def rank(self, batch: SequenceBatch, *, lists: bool = True, user: Any = None) -> Ranked:
        """Computes the rank of each held-out item, and the best items.

        Args:
            lists: If True, the best items are listed.
            user: Result of `encode`, if it has been computed.
        """
        user = self.encode(batch) if user is None else user
        return self.ranking.rank(partial(self.score, user), batch, lists=lists)

    def baselines(self, data: HistoryData) -> Sequence[Baseline]:
        def measure() -> dict[str, float]:
            found: dict[str, float] = {}
            for split in ("val", "test"):
                metrics = self.ranking.metrics(self.item_count, lists=False)
                for batch in data.loader(split):
                    metrics.update(self.ranking.popularity(batch))
                if int(metrics.ranks.sum()):
                    found |= {f"{split}/{name}": float(value) for name, value in metrics.compute().items()}
            return found

        return [Baseline("popularity", measure)]
