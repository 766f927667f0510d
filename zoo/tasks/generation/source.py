"""The texts that a net reads, padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from zoo.attention import DenseSupport
from zoo.attention.kernels.kept import for_later
from zoo.tasks.batches import moved
from zoo.tasks.generation.targets import padded, real, some_rows


@dataclass(frozen=True, eq=False)
class Source:
    """The texts that are read, padded.

    Args:
        tokens: Numbers of the tokens.
        lengths: Number of tokens of each text.
    """

    tokens: Int[Tensor, "b k"]
    lengths: Int[Tensor, " b"]

    @classmethod
    def of(cls, texts: Sequence[Sequence[int]]) -> Source:
        return cls(*padded(texts))

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def is_real(self) -> Bool[Tensor, "b k"]:
        """Mask of the tokens that are not padding."""
        return for_later(lambda: real(self.lengths, self.tokens.shape[1]))

    @cached_property
    def support(self) -> DenseSupport:
        """The support of attention to these texts."""
        return DenseSupport.from_key_mask(self.is_real)

    def some(self, numbers: Int[Tensor, " s"]) -> Source:
        """Returns some of the texts, without the padding that none of them needs."""
        return Source(*some_rows(self.tokens, self.lengths, numbers))

    def to(self, device: torch.device | str) -> Source:
        return moved(self, device)
