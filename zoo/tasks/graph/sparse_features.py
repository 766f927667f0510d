"""Sparse node features: only the nonzeros are stored, multiplied and differentiated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention import SparsePattern
from zoo.attention.dropout import dropout
from zoo.attention.kernels import sparse


@dataclass(frozen=True, eq=False)
class SparseFeatures:
    """A sparse matrix (nodes, features) with products and dropout, whose cost grows with the nonzeros only."""

    values: Float[Tensor, " e"] | Float[Tensor, "e h"]
    """The value of each nonzero, or its value for each head."""
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
        """Returns the features of some nodes, in the order of `chosen`."""
        starts = self.pattern.row_starts.long()
        counts = starts.diff()[chosen]
        row = torch.repeat_interleave(torch.arange(len(chosen), device=chosen.device), counts)
        first = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
        entry = starts[chosen][row] + torch.arange(len(row), device=chosen.device) - first[row]
        shape = (len(chosen), self.shape[1])
        pattern, order = SparsePattern.from_entries(row, self.pattern.columns[entry].long(), shape)
        return SparseFeatures(self.values[entry][order], pattern)

    def project(self, weight: Float[Tensor, "f h d"]) -> Float[Tensor, "n h d"]:
        """Computes x W for every head."""
        if self.values.dim() == 2:
            return sparse.product(self.values, weight, self.pattern)
        # all heads share the values: one product with the weights of the heads side by side
        joined = sparse.product(self.values.unsqueeze(1), weight.flatten(1).unsqueeze(1), self.pattern)
        return joined.view(len(joined), *weight.shape[1:])

    def dropout(self, p: float, *, masks: int = 1) -> SparseFeatures:
        """Applies dropout with one mask, or one for each head. Only the nonzeros need random numbers."""
        if masks == 1:
            return SparseFeatures(dropout(self.values, p, training=True), self.pattern)
        # heads first in memory, the layout that the product of several heads reads fastest
        return SparseFeatures(dropout(self.values.expand(masks, -1), p, training=True).t(), self.pattern)

    def to(self, device: torch.device | str, **options: Any) -> SparseFeatures:
        return SparseFeatures(self.values.to(device=device, **options), self.pattern.to(device, **options))

    def isfinite(self) -> bool:
        return bool(torch.isfinite(self.values).all())


def negate_rows(
    x: Float[Tensor, "n f"] | SparseFeatures, nodes: Int[Tensor, " m"]
) -> Float[Tensor, "n f"] | SparseFeatures:
    """Returns features with different values at some nodes: -x, or -x - 1 if dense, since x may be 0."""
    chosen = torch.zeros(len(x), dtype=torch.bool, device=nodes.device).index_fill_(0, nodes, True)
    if isinstance(x, SparseFeatures):
        starts = x.pattern.row_starts.long()
        entries = torch.repeat_interleave(chosen, starts.diff())
        return SparseFeatures(torch.where(entries, -x.values, x.values), x.pattern)
    return torch.where(chosen[:, None], -x - 1.0, x)
