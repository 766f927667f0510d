"""Node features that are mostly zeros, kept as their nonzeros from the file to the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from zoo.attention import SparsePattern, dropout, sparse


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

    def project(self, weight: Float[Tensor, "f h d"]) -> Float[Tensor, "n h d"]:
        """x W for every head."""
        if self.values.dim() == 2:
            return sparse.product(self.values, weight, self.pattern)
        # values that all heads share: one product with the heads side by side
        joined = sparse.product(self.values.unsqueeze(1), weight.flatten(1).unsqueeze(1), self.pattern)
        return joined.view(len(joined), *weight.shape[1:])

    def dropout(self, p: float, *, masks: int = 1) -> SparseFeatures:
        """A zero that is dropped stays a zero: only the nonzeros need random numbers, for each of the masks."""
        values = self.values if masks == 1 else self.values.unsqueeze(1).expand(-1, masks)
        return SparseFeatures(dropout(values, p, training=True), self.pattern)

    def to(self, device: torch.device | str, **options: Any) -> SparseFeatures:
        return SparseFeatures(self.values.to(device=device, **options), self.pattern.to(device, **options))

    def isfinite(self) -> bool:
        return bool(torch.isfinite(self.values).all())
