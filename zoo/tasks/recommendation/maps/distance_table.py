"""The table of mean attention weights by the distance of a key from its query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.tasks.recommendation.batch import SequenceBatch

if TYPE_CHECKING:
    import pandas as pd


class ByDistance:
    """Mean weights of each site and head by distance: over the queries that have a key this many positions back."""

    def __init__(self) -> None:
        self._sums: dict[str, Float[Tensor, "h d"]] = {}
        self._queries: dict[str, Float[Tensor, " d"]] = {}
        self._uniform: dict[str, Float[Tensor, " d"]] = {}

    def add(self, site: str, weights: Float[Tensor, "u h q k"], real: Bool[Tensor, "u k"]) -> None:
        """Adds causal self-attention of several users. Weights of padding must be zero."""
        length = real.shape[1]
        steps = torch.arange(length, device=real.device)
        back = steps[:, None] - steps
        pairs = back >= 0
        sums = weights.double().sum(0)[:, pairs]
        of = back[pairs]
        # Query q has q + 1 keys, one at each distance from 0 to q.
        queries = real.sum(0).double()
        have = queries.flip(0).cumsum(0).flip(0)
        uniform = (queries / (steps + 1)).flip(0).cumsum(0).flip(0)
        self._add(site, sums.new_zeros(len(sums), length).index_add(1, of, sums), have, uniform)

    def add_last(self, site: str, weights: Float[Tensor, " n"], batch: SequenceBatch) -> None:
        """Adds the weights of each user's candidate. The last item of the history has distance 1."""
        back = batch.last[batch.users] - torch.arange(len(batch.items), device=batch.items.device) + 1
        uniform = 1.0 / batch.lengths[batch.users].double()
        parts = (weights.double(), torch.ones_like(uniform), uniform)
        sums, have, even = (x.new_zeros(int(back.max()) + 1, dtype=torch.float64).index_add(0, back, x) for x in parts)
        self._add(site, sums[None], have, even)

    def frame(self, layers: list[str]) -> pd.DataFrame:
        """Returns the columns layer, site, head, distance, weight, uniform (mean of equal weights) and queries."""
        import pandas as pd

        frames = []
        for site, sums in self._sums.items():
            have = self._queries[site]
            for head, row in enumerate(sums):
                which = (have > 0).nonzero().flatten()
                columns = {
                    "layer": layers.index(site),
                    "site": site,
                    "head": head,
                    "distance": which.numpy(),
                    "weight": (row / have)[which].numpy(),
                    "uniform": (self._uniform[site] / have)[which].numpy(),
                    "queries": have[which].long().numpy(),
                }
                frames.append(pd.DataFrame(columns))
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()

    def _add(self, site: str, sums: Tensor, queries: Tensor, uniform: Tensor) -> None:
        for held, part in ((self._sums, sums), (self._queries, queries), (self._uniform, uniform)):
            part = part.cpu()
            have = held.get(site, part[..., :0])
            length = max(have.shape[-1], part.shape[-1])
            held[site] = F.pad(have, (0, length - have.shape[-1])) + F.pad(part, (0, length - part.shape[-1]))
