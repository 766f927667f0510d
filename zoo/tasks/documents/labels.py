"""The labels that documents can have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Targets = Literal["single", "multi", "ordinal"]
"""One label a document; any number of them; or one of several numbers, such as ratings."""


@dataclass(frozen=True, eq=False)
class LabelSet:
    """The labels of a data set, which all its batches share.

    Args:
        names: In the order of their numbers.
        targets: How many of them a document has, and whether they are numbers.
        counts: How many training documents have each.
        documents: How many training documents there are.
    """

    names: tuple[str, ...]
    targets: Targets
    counts: tuple[int, ...]
    documents: int

    @cached_property
    def values(self) -> Float[Tensor, " classes"]:
        """The numbers that ordinal labels are."""
        return torch.tensor([float(name) for name in self.names])

    def balanced(self) -> Float[Tensor, " classes"]:
        """Weights with which every label counts as much: n / (K n_c), and for several labels (n - n_c) / n_c."""
        counts = torch.tensor(self.counts, dtype=torch.float32).clamp(min=1.0)
        if self.targets == "multi":
            return (self.documents - counts).clamp(min=1.0) / counts
        return self.documents / (len(self.names) * counts)
