"""The texts that a model learns to write, as one padded batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from zoo.attention.kernels.cache import outside_inference_mode
from zoo.data.transfer import to_device
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD


@dataclass(frozen=True, eq=False)
class Targets:
    """The tokens of each text with the end, and padding behind it.

    Args:
        tokens: The targets of the steps of a decoder.
        lengths: Number of tokens of each text, with the end.
    """

    tokens: Int[Tensor, "b n"]
    lengths: Int[Tensor, " b"]

    @classmethod
    def pad(cls, texts: Sequence[Sequence[int]]) -> Targets:
        """Makes a batch of texts, which are given without their ends."""
        return cls(*pad_sequences(texts, last=[END]))

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def is_real(self) -> Bool[Tensor, "b n"]:
        """Mask of the steps that are not padding."""
        return outside_inference_mode(lambda: real(self.lengths, self.tokens.shape[1]))

    @cached_property
    def read(self) -> Int[Tensor, "b n"]:
        """The tokens that a decoder reads at each step: the begin, then the texts without their last tokens."""
        return outside_inference_mode(
            lambda: torch.cat([torch.full_like(self.tokens[:, :1], BEGIN), self.tokens[:, :-1]], 1)
        )

    def select(self, numbers: Int[Tensor, " s"]) -> Targets:
        """Returns some of the texts, without the padding that none of them needs."""
        return Targets(*some_rows(self.tokens, self.lengths, numbers))

    def texts(self) -> list[list[int]]:
        """Returns the tokens of each text, without the end."""
        rows = zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)
        return [tokens[: length - 1] for tokens, length in rows]

    def to(self, device: torch.device | str) -> Targets:
        return to_device(self, device)


def pad_sequences(
    rows: Sequence[Sequence[int]], last: Sequence[int] = ()
) -> tuple[Int[Tensor, "b n"], Int[Tensor, " b"]]:
    """Returns rows of tokens as a matrix, and their lengths.

    Args:
        rows: The rows, as lists or arrays.
        last: Tokens that follow each row.
    """
    lengths = np.array([len(row) + len(last) for row in rows], dtype=np.int64)
    tokens = np.full((len(rows), lengths.max(initial=0)), PAD, dtype=np.int64)
    for place, (row, end) in enumerate(zip(rows, lengths.tolist(), strict=True)):
        tokens[place, : len(row)] = row
        tokens[place, len(row) : end] = last
    return torch.from_numpy(tokens), torch.from_numpy(lengths)


def real(lengths: Int[Tensor, " b"], longest: int) -> Bool[Tensor, "b n"]:
    """Returns the mask of the places that are not padding."""
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)


def some_rows(
    padded: Shaped[Tensor, "b n *d"], lengths: Int[Tensor, " b"], numbers: Int[Tensor, " s"]
) -> tuple[Shaped[Tensor, "s m *d"], Int[Tensor, " s"]]:
    """Returns some rows of padded tokens or vectors, without the padding that none of them needs, and their lengths."""
    lengths = lengths[numbers]
    return padded[numbers, : int(lengths.max()) if len(lengths) else 0], lengths
