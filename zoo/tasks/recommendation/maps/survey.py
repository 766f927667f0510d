"""A row for each user of a split: what is recommended, and the past item that weighs most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.maps.score import Pointing
from zoo.tasks.recommendation.batch import Histories
from zoo.tasks.recommendation.maps.looks import Look
from zoo.tasks.recommendation.maps.scored import by_user, gold_positions
from zoo.tasks.recommendation.maps.tables import ByDistance

if TYPE_CHECKING:
    import pandas as pd

    from zoo.tasks.recommendation.recommender import Recommender


class Survey:
    """One pass; memory does not grow with the number of users, except for one number each.

    Attributes:
        distances: Empty where no attention has weights.
        users: How many were looked at.
    """

    def __init__(self, module: Recommender) -> None:
        self.module = module
        self.distances = ByDistance()
        self.users = 0
        self._pointing = Pointing()

    @torch.inference_mode()
    def rows(self, look: Look) -> pd.DataFrame:
        """A row a user: what `predict_step` says, how many items, and which of them weighs most in the scored map."""
        import pandas as pd

        module, batch = self.module, look.batch
        columns: dict[str, Any] = module.predicted(batch, module.ranked(batch, user=look.user))
        columns = {key: columns[key] for key in ("id", "split", "label", "prediction")}
        columns["items"] = batch.lengths.tolist()
        look.measure(self.distances)
        shares = module.scored(look)
        if shares is not None:
            columns |= self._heaviest(batch, shares)
        self.users += len(batch)
        return pd.DataFrame(columns)

    def truth(self) -> dict[str, float | None]:
        """The scores over all users whose gold is known."""
        return self._pointing.truth()

    def _heaviest(self, batch: Histories, shares: Float[Tensor, " n"]) -> dict[str, Any]:
        rows = by_user(shares, batch, "shares").weights[:, 0, 0]
        share, place = rows.max(1)
        items = batch.items[batch.starts + place].tolist()
        columns: dict[str, Any] = {
            "weighs_most": [batch.catalogue.names[item] for item in items],
            "title": [batch.catalogue.shown(item) for item in items],
            "share": share.tolist(),
            "back": (batch.lengths - 1 - place).tolist(),
        }
        gold = gold_positions(batch)
        if gold is not None:
            columns["points_at_gold"] = self._pointing.add(
                rows, by_user(gold.float(), batch, "gold").weights[:, 0, 0] > 0
            )
        return columns
