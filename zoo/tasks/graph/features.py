"""Node features that are mostly zeros, kept as their nonzeros from the file to the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention import SparsePattern, dropout
from zoo.attention.kernels import sparse


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """A sparse matrix (nodes, features) that can be multiplied and dropped out; only nonzeros cost anything."""

    values: Float[Tensor, " e"] | Float[Tensor, "e h"]
    """One number an entry, or one for each head."""
    pattern: SparsePattern

    @classmethod
    def from_csr(cls, matrix: Tensor) -> SparseFeatures:
        starts = matrix.crow_indices()
        rows = torch.repeat_interleave(torch.arange(len(matrix)), starts.diff())
        pattern, order = SparsePattern.from_entries(rows, matrix.col_indices(), (matrix.shape[0], matrix.shape[1]))
        return cls(values=matrix.values()[order], pattern=pattern)

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self.pattern.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, chosen: Int[Tensor, " m"]) -> SparseFeatures:
        """Those of some nodes, in their order."""
        starts = self.pattern.row_starts.long()
        counts = starts.diff()[chosen]
        row = torch.repeat_interleave(torch.arange(len(chosen), device=chosen.device), counts)
        first = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
        entry = starts[chosen][row] + torch.arange(len(row), device=chosen.device) - first[row]
        shape = (len(chosen), self.shape[1])
        pattern, order = SparsePattern.from_entries(row, self.pattern.columns[entry].long(), shape)
        return SparseFeatures(self.values[entry][order], pattern)

    def project(self, weight: Float[Tensor, "f h d"]) -> Float[Tensor, "n h d"]:
        """x W for every head."""
        if self.values.dim() == 2:
            return sparse.product(self.values, weight, self.pattern)
        # values that all heads share: one product with the heads side by side
        joined = sparse.product(self.values.unsqueeze(1), weight.flatten(1).unsqueeze(1), self.pattern)
        return joined.view(len(joined), *weight.shape[1:])

    def dropout(self, p: float, *, masks: int = 1) -> SparseFeatures:
        """A zero that is dropped stays a zero: only the nonzeros need random numbers, for each of the masks."""
        if masks == 1:
            return SparseFeatures(dropout(self.values, p, training=True), self.pattern)
        # heads first in memory, as the product of several heads wants them
        return SparseFeatures(dropout(self.values.expand(masks, -1), p, training=True).t(), self.pattern)

    def to(self, device: torch.device | str, **options: Any) -> SparseFeatures:
        return SparseFeatures(self.values.to(device=device, **options), self.pattern.to(device, **options))

    def isfinite(self) -> bool:
        return bool(torch.isfinite(self.values).all())


def negated(
    x: Float[Tensor, "n f"] | SparseFeatures, nodes: Int[Tensor, " m"]
) -> Float[Tensor, "n f"] | SparseFeatures:
    """Features with those of some nodes negated, and moved where they are dense: another value everywhere."""
    chosen = torch.zeros(len(x), dtype=torch.bool, device=nodes.device).index_fill_(0, nodes, True)
    if isinstance(x, SparseFeatures):
        starts = x.pattern.row_starts.long()
        entries = torch.repeat_interleave(chosen, starts.diff())
        return SparseFeatures(torch.where(entries, -x.values, x.values), x.pattern)
    return torch.where(chosen[:, None], -x - 1.0, x)
