"""The labels of a data set of documents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Targets = Literal["single", "multi", "ordinal"]
"""Kinds of labels: one per document, any number per document, or one per document that is a number, as ratings are."""


@dataclass(frozen=True, eq=False)
class LabelSet:
    """The labels of a data set, which all its batches share.

    Args:
        names: Name of each label.
        targets: Kind of labels.
        counts: Number of training documents that have each label.
        documents: Number of training documents.
    """

    names: tuple[str, ...]
    targets: Targets
    counts: tuple[int, ...]
    documents: int

    @cached_property
    def values(self) -> Float[Tensor, " classes"]:
        """The numeric values of ordinal labels."""
        return torch.tensor([float(name) for name in self.names])

    def balance(self) -> Float[Tensor, " classes"]:
        """Returns weights that balance the labels: n / (K n_c), or (n - n_c) / n_c if documents can have several."""
        counts = torch.tensor(self.counts, dtype=torch.float32).clamp(min=1.0)
        if self.targets == "multi":
            return (self.documents - counts).clamp(min=1.0) / counts
        return self.documents / (len(self.names) * counts)
