"""Channel gates by class: the mean gate of each channel of each layer, over as many pictures as there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention import AttentionMap

if TYPE_CHECKING:
    import pandas as pd


class GateTable:
    """Mean and standard deviation, batch by batch: memory is that of one table, however many pictures there are.

    Args:
        classes: Their names, in order.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)
        self._counts: dict[str, Tensor] = {}
        self._means: dict[str, Tensor] = {}
        self._squares: dict[str, Tensor] = {}

    def add(self, found: Mapping[str, AttentionMap], of: Int[Tensor, " b"]) -> None:
        """The channel gates of a recording of pictures of these classes; other maps are left aside."""
        for site, each in found.items():
            if each.axes == ("batch", "channel"):
                self._add(site, each.weights.detach().double().cpu(), of.cpu())

    def frame(self, layers: Sequence[str]) -> pd.DataFrame:
        """layer, site, channel, class, mean, sd, n: a row a layer, channel and class that has pictures.

        The standard deviation is that of a sample, and NaN for one picture.

        Args:
            layers: All sites of the model, by which layers are numbered.
        """
        import pandas as pd

        parts = [pd.DataFrame(columns=["layer", "site", "channel", "class", "mean", "sd", "n"])]
        for site, means in self._means.items():
            counts = self._counts[site]
            deviation = (self._squares[site] / (counts - 1)[:, None]).sqrt()
            for number in counts.nonzero().flatten().tolist():
                columns = {
                    "layer": layers.index(site),
                    "site": site,
                    "channel": range(means.shape[1]),
                    "class": self.classes[number],
                    "mean": means[number].numpy(),
                    "sd": deviation[number].numpy() if counts[number] > 1 else float("nan"),
                    "n": int(counts[number]),
                }
                parts.append(pd.DataFrame(columns))
        return pd.concat(parts[1:] or parts, ignore_index=True)

    def _add(self, site: str, gates: Float[Tensor, "b c"], of: Int[Tensor, " b"]) -> None:
        """Chan et al. 1983: means and sums of squared deviations of two groups, joined."""
        shape = (len(self.classes), gates.shape[1])
        if site not in self._means:
            self._counts[site] = torch.zeros(len(self.classes), dtype=torch.float64)
            self._means[site], self._squares[site] = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))
        counts = torch.bincount(of, minlength=len(self.classes)).double()
        means = torch.zeros(shape, dtype=torch.float64).index_add(0, of, gates) / counts.clamp(min=1)[:, None]
        squares = torch.zeros(shape, dtype=torch.float64).index_add(0, of, (gates - means[of]).square())
        total = self._counts[site] + counts
        share = (counts / total.clamp(min=1))[:, None]
        apart = means - self._means[site]
        self._squares[site] += squares + apart.square() * self._counts[site][:, None] * share
        self._means[site] += apart * share
        self._counts[site] = total
