"""Channel gates by class: mean and standard deviation of each channel in each layer."""

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
    """Accumulates mean and standard deviation batch by batch; its memory does not grow with the number of pictures.

    Args:
        classes: Name of each class.
    """

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)
        self._counts: dict[str, Tensor] = {}
        self._means: dict[str, Tensor] = {}
        self._squares: dict[str, Tensor] = {}

    def add(self, found: Mapping[str, AttentionMap], of: Int[Tensor, " b"]) -> None:
        """Adds the channel gates of a recording; other maps are ignored.

        Args:
            found: The recording of a batch of pictures.
            of: Index of the class of each picture.
        """
        for site, each in found.items():
            if each.axes == ("batch", "channel"):
                self._add(site, each.weights.detach().double().cpu(), of.cpu())

    def frame(self, layers: Sequence[str]) -> pd.DataFrame:
        """Returns the table: layer, site, channel, class, mean, sd, n, for each class that has pictures.

        The standard deviation is that of a sample; it is NaN for one picture.

        Args:
            layers: All sites of the model, which number the layers.
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
        """Adds a batch to the means and the sums of squared deviations (Chan et al. 1983)."""
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
