"""The base of all recommenders: evaluation, recommendations and maps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention import AttentionMap
from zoo.attention.observing.record import Recording
from zoo.errors import ConfigError
from zoo.maps.score import pointing
from zoo.maps.source import MapOptions
from zoo.tasks.command_options import CommandOption
from zoo.tasks.contract import Task
from zoo.tasks.recommendation.answers import TOP, answers, checked, recommended
from zoo.tasks.recommendation.batch import Histories
from zoo.tasks.recommendation.maps.looks import UNASKED, Look
from zoo.tasks.recommendation.maps.map_source import UserMaps
from zoo.tasks.recommendation.maps.scored import How, by_user, gold_positions, map_name, occluded
from zoo.tasks.recommendation.ranking.metrics import RankMetrics
from zoo.tasks.recommendation.ranking.protocol import Protocol
from zoo.tasks.recommendation.ranking.ranks import Ranked
from zoo.training import ranks
from zoo.training.optimisation import Optimisation

if TYPE_CHECKING:
    from zoo.tasks.recommendation.data.history_data import HistoryData


class Recommender(Task):
    """Ranks the item that a user chose next among others: hit rate, NDCG, reciprocal rank, coverage, popularity beside.

    Beside figures among sampled negatives stand those of full ranking (`full_hr@10`), as far as lists are made.

    Args:
        optimisation: Optimiser, schedule, frozen layers and rates.
        items: From the data.
        protocol: Among which items the held-out one is ranked.
        explain: What the map that is scored is made of, see `maps.scored`; None: no map.
    """

    primary = "val/ndcg@10"
    primary_mode = "max"
    headline = ("ndcg@10", "hr@10", "mrr", "popularity_ndcg@10")
    net: Any
    """With `items`, its table of embeddings."""

    def __init__(self, *, optimisation: Optimisation, items: int, protocol: Protocol, explain: How | None) -> None:
        super().__init__(optimisation=optimisation)
        self.item_count = items
        if 10 not in protocol.ks:
            raise ConfigError(f"model.protocol.ks={list(protocol.ks)}: add 10, by which the best weights are chosen")
        self.ranking = protocol
        self.how = explain
        self.val_ranks = protocol.metrics(items, ks=(10,), lists=False)
        self.test_ranks = protocol.metrics(items)
        self.test_popularity = protocol.metrics(items, lists=False)
        self.test_all = replace(protocol, negatives=None).metrics(items, lists=False)
        self.pointing = ranks.MeanOfTargets()

    @abstractmethod
    def user(self, batch: Histories) -> Any:
        """The representation of users from which scores are computed, once a batch."""

    @abstractmethod
    def score(self, user: Any, items: Int[Tensor, " i"]) -> Float[Tensor, "b i"]:
        """How likely each user is to choose each of these items next, on any scale."""

    @abstractmethod
    def influence(self, batch: Histories) -> Float[Tensor, " n"]:
        """Of each position, its share in what comes next for its user, by attention."""

    @abstractmethod
    def together(self, batch: Histories) -> list[list[int]]:
        """The users of a batch in groups, of which `look` takes one at a time: memory is that of a group's maps."""

    @abstractmethod
    def look(self, batch: Histories, count: int = 0, also: AbstractContextManager[Recording | None] = UNASKED) -> Look:
        """Records a pass over one of `together`, and recommends so many items to each user at least.

        Args:
            also: A second recording of the pass, of other sites say.
        """

    def weights(self, batch: Histories, items: Int[Tensor, "b k"]) -> Float[Tensor, "n k"]:
        """Of each position, its share in each of its user's items, by attention: the same for all of them here."""
        return self.influence(batch)[:, None].expand(-1, items.shape[1])

    def among(self, batch: Histories, items: Int[Tensor, "b k"]) -> Float[Tensor, "b k"]:
        """Each user's scores of items of its own."""
        distinct, which = torch.unique(items, return_inverse=True)
        return self.score(self.user(batch), distinct).gather(1, which)

    def validation_step(self, batch: Histories, batch_idx: int) -> None:
        self.val_ranks.update(self.ranked(batch, lists=False).ranks)

    def on_validation_epoch_end(self) -> None:
        self._log("val", self.val_ranks)

    def test_step(self, batch: Histories, batch_idx: int) -> None:
        """Every metric of a batch, whichever split it is of; `run` names them after it."""
        ranked = self.ranked(batch, lists=self.test_ranks.lists)
        self.test_ranks.update(ranked.ranks, ranked.top)
        if ranked.among_all is not None:
            self.test_all.update(ranked.among_all)
        self.test_popularity.update(self.ranking.popularity(batch))
        gold = gold_positions(batch)
        if gold is not None and self.how is not None:
            found = self.explain(batch).weights[:, 0, 0]
            belongs = by_user(gold.float(), batch, "gold").weights[:, 0, 0] > 0
            self.pointing.update(pointing(found, belongs))
            self.log("truth/pointing_accuracy", self.pointing, on_step=False, on_epoch=True, batch_size=len(batch))

    def on_test_epoch_end(self) -> None:
        self._log("test", self.test_ranks)
        self._log("test", self.test_popularity, "popularity_")
        if self.ranking.negatives is not None and self.test_ranks.lists:
            self._log("test", self.test_all, "full_")

    def explain(self, batch: Histories) -> AttentionMap:
        """The scored map: one query a user, the next item; its keys are the history, oldest first."""
        if self.how is None:
            raise ConfigError("this model has no map of what it looks at: its attention has no weights")
        return by_user(self.shares(batch), batch, map_name(self.how, self.net))

    def shares(self, batch: Histories) -> Float[Tensor, " n"]:
        """Of each position, its share in what comes next for its user, by the scored map."""
        if self.how == "occlusion":
            return occluded(self.among, batch, recommended(self, batch, 1).top.clamp(min=0))
        return self.influence(batch)

    def scored(self, look: Look) -> Float[Tensor, " n"] | None:
        """The same from a recorded pass, and from further ones with items replaced for occlusion; None: no map."""
        if self.how is None:
            return None
        if self.how == "occlusion":
            best = recommended(self, look.batch, 1, user=look.user).top
            return occluded(self.among, look.batch, best.clamp(min=0))
        return look.shares(self.how)

    def maps(self, data: HistoryData, options: MapOptions) -> UserMaps:
        return UserMaps(self, data, options)

    predict_options = (
        CommandOption(name="top", kind=int, metavar="N", help=f"the N best items for each user; default: {TOP}"),
        CommandOption(
            name="explain",
            bare="",
            metavar="HOW",
            help="why each was recommended, by occlusion; --explain=attention: by attention",
        ),
        CommandOption(name="seen", kind=None, help="recommend also what the user has chosen before"),
    )

    def predictor(
        self, *, top: int | None = None, explain: str | None = None, seen: bool = False
    ) -> Callable[[Any], dict[str, list[Any]]]:
        """`zoo predict`: the best items of each user and, on request, why."""
        if top is not None and top < 1:
            raise ConfigError(f"--top={top}: write 1 or more")
        why = checked(explain, has_attention=self.how not in (None, "occlusion"))
        return lambda batch: answers(self, batch, top=TOP if top is None else top, why=why, seen=seen)

    def predict_step(self, batch: Histories, batch_idx: int = 0) -> dict[str, list[Any]]:
        """One column a key, one entry a user; `loss` is the rank of the held-out item, None where none is known."""
        return self.predicted(batch, self.ranked(batch))

    def predicted(self, batch: Histories, found: Ranked) -> dict[str, list[Any]]:
        """The columns of `predict_step`."""
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
        """How the test metrics are measured."""
        said = self.ranking.describe(self.item_count)
        if self.ranking.negatives is None or not self.test_ranks.lists:
            return said
        return f"{said}; full_: {replace(self.ranking, negatives=None).describe(self.item_count)}"

    def ranked(self, batch: Histories, *, lists: bool = True, user: Any = None) -> Ranked:
        """The rank of each held-out item and, on request, the best items.

        Args:
            user: What scores are computed from, where that is known already.
        """
        user = self.user(batch) if user is None else user
        return self.ranking.rank(partial(self.score, user), batch, lists=lists)

    def _log(self, split: str, metrics: RankMetrics, prefix: str = "") -> None:
        self.log_dict({f"{split}/{prefix}{name}": value for name, value in metrics.compute().items()})
        metrics.reset()
