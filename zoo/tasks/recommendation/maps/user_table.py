"""The table of users: a row for each user of a split, with the recommendation and the past item of greatest share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.maps.metrics import Pointing
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.maps.attributions import gold_positions, group_by_user
from zoo.tasks.recommendation.maps.distance_table import ByDistance
from zoo.tasks.recommendation.maps.recorded_forward import RecordedPass

if TYPE_CHECKING:
    import pandas as pd

    from zoo.tasks.recommendation.task import Recommender


class Survey:
    """Collects the table of users, the means by distance and the truth score from the recorded passes of all users.

    Memory does not grow with the number of users, except for one number for each.

    Attributes:
        distances: Mean weights by distance; empty if no attention has weights.
        users: Number of users so far.
    """

    def __init__(self, module: Recommender) -> None:
        self.module = module
        self.distances = ByDistance()
        self.users = 0
        self._pointing = Pointing()

    @torch.inference_mode()
    def rows(self, recorded: RecordedPass) -> pd.DataFrame:
        """Returns a row for each user: the prediction, the number of items, and the past item of greatest share."""
        import pandas as pd

        module, batch = self.module, recorded.batch
        columns: dict[str, Any] = module.predict_columns(batch, module.rank(batch, user=recorded.user))
        columns = {key: columns[key] for key in ("id", "split", "label", "prediction")}
        columns["items"] = batch.lengths.tolist()
        recorded.measure(self.distances)
        shares = module.compute_scored_map(recorded)
        if shares is not None:
            columns |= self._heaviest(batch, shares)
        self.users += len(batch)
        return pd.DataFrame(columns)

    def truth(self) -> dict[str, float | None]:
        """Returns the truth score over all users with gold."""
        return self._pointing.truth()

    def _heaviest(self, batch: SequenceBatch, shares: Float[Tensor, " n"]) -> dict[str, Any]:
        rows = group_by_user(shares, batch, "shares").weights[:, 0, 0]
        share, position = rows.max(1)
        items = batch.items[batch.starts + position].tolist()
        columns: dict[str, Any] = {
            "weighs_most": [batch.catalogue.names[item] for item in items],
            "title": [batch.catalogue.title_of(item) for item in items],
            "share": share.tolist(),
            "back": (batch.lengths - 1 - position).tolist(),
        }
        gold = gold_positions(batch)
        if gold is not None:
            columns["points_at_gold"] = self._pointing.add(
                rows, group_by_user(gold.float(), batch, "gold").weights[:, 0, 0] > 0
            )
        return columns
