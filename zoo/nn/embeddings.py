"""Vectors of words."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from zoo.attention.dropout import Dropout
from zoo.types import PositiveInt, Probability, validate_ranges


@validate_ranges
class TokenEmbedding(nn.Module):
    """A learned vector for each word of the vocabulary (Yang et al. 2016, section 2.2, the matrix W_e).

    Args:
        words: Size of the vocabulary.
        dim: Width of a vector.
        dropout: Dropout of the entries of vectors.
    """

    def __init__(self, *, words: PositiveInt, dim: PositiveInt, dropout: Probability = 0.0) -> None:
        super().__init__()
        self.table = nn.Embedding(words, dim)
        self.dropout = Dropout(dropout)

    def forward(self, words: Int[Tensor, "*n"]) -> Float[Tensor, "*n d"]:
        return self.dropout(self.table(words))  # type: ignore[no-any-return]

    @torch.no_grad()
    def start_from(self, vectors: Float[Tensor, "words d"], known: Bool[Tensor, " words"]) -> None:
        """Replaces the vectors of some words by pretrained ones.

        Args:
            vectors: Vector of each word of the vocabulary.
            known: Mask of the words whose vectors are replaced.
        """
        if vectors.shape != self.table.weight.shape:
            given, own = tuple(vectors.shape), tuple(self.table.weight.shape)
            raise ValueError(f"{given[0]} word vectors of width {given[1]} for {own[0]} words of width {own[1]}")
        self.table.weight[known] = vectors[known].to(self.table.weight)
