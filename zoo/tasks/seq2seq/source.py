"""What a net reads, padded; texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from zoo.attention import DenseSupport
from zoo.attention.kernels.cache import outside_inference_mode
from zoo.data.transfer import to_device
from zoo.tasks.seq2seq.targets import pad_sequences, real, some_rows


@dataclass(frozen=True, eq=False)
class Padded:
    """Rows of different lengths that a net reads, padded.

    Args:
        rows: Numbers of tokens, or vectors; zeros in the padding.
        lengths: Number of rows of each example.
    """

    rows: Shaped[Tensor, "b k *d"]
    lengths: Int[Tensor, " b"]

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def is_real(self) -> Bool[Tensor, "b k"]:
        """Mask of the rows that are not padding."""
        return outside_inference_mode(lambda: real(self.lengths, self.rows.shape[1]))

    @cached_property
    def support(self) -> DenseSupport:
        """The support of attention to these rows."""
        return DenseSupport.from_key_mask(self.is_real)

    def select(self, numbers: Int[Tensor, " s"]) -> Self:
        """Returns some of the examples, without the padding that none of them needs."""
        return type(self)(*some_rows(self.rows, self.lengths, numbers))

    def to(self, device: torch.device | str) -> Self:
        return to_device(self, device)


class Source(Padded):
    """The texts that are read: rows are numbers of tokens."""

    @classmethod
    def pad(cls, texts: Sequence[Sequence[int]]) -> Source:
        return cls(*pad_sequences(texts))

    def keep_tokens(self, keep: Bool[Tensor, "v k"]) -> Source:
        """Returns the only text of this batch for each variant, with the tokens that it keeps."""
        rows = self.tokens.expand(len(keep), -1)
        return Source.pad([row[kept].tolist() for row, kept in zip(rows, keep, strict=True)]).to(rows.device)

    @property
    def tokens(self) -> Int[Tensor, "b k"]:
        return self.rows
