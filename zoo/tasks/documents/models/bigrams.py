"""Vectors of pairs of adjacent words."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention.dropout import dropout
from zoo.types import PositiveInt, Probability, validate_ranges

_FACTOR = 0x2545F491
"""An odd number below 2^30, so that its product with a code below 2^32 does not exceed 64 bits."""


@validate_ranges
class WordPairs(nn.Module):
    """Learns a vector for each pair of a word and the one before it in its sentence (Joulin et al. 2016, section 2.1).

    A hash of the names of both words selects the vector. Therefore no list of pairs is stored, and a pair has the same
    row in every vocabulary; different pairs may share a vector. Vectors are initialised to zero.

    Args:
        words: Size of the vocabulary.
        dim: Width of a vector.
        rows: Number of vectors.
        dropout: Probability that the whole vector of a pair is set to zero in training.
        pairless: Probability that all pairs of a document are set to zero in training. The others are not scaled up.
    """

    codes: Int[Tensor, " words"]

    def __init__(
        self,
        *,
        words: PositiveInt,
        dim: PositiveInt,
        rows: PositiveInt = 2**19,
        dropout: Probability = 0.0,
        pairless: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, dim)
        nn.init.zeros_(self.table.weight)
        self.dropout = dropout
        self.pairless = pairless
        self.register_buffer("codes", torch.arange(1, words + 1))

    def name(self, words: Sequence[str]) -> None:
        """Derives the codes of words from their names; until then, the code of a word is its index plus one.

        Args:
            words: Names of all words of the vocabulary, in its order.
        """
        if len(words) != len(self.codes):
            raise ValueError(f"{len(words)} names for {len(self.codes)} words")
        self.codes.copy_(torch.tensor([zlib.crc32(word.encode()) for word in words]))

    def forward(
        self, words: Int[Tensor, " n"], sentences: Int[Tensor, " n"], documents: Int[Tensor, " n"]
    ) -> Float[Tensor, "n d"]:
        """Returns the vector of each word of packed sentences and the word before it.

        Args:
            words: Vocabulary index of each word.
            sentences: Index of each word's sentence. The first word of a sentence has no word before it.
            documents: Index of each word's document.
        """
        vectors: Tensor = self.table(self.rows(words, sentences))
        if not self.training:
            return vectors
        kept = dropout(vectors.new_ones(len(vectors), 1), self.dropout, True)
        if self.pairless:
            is_read = torch.rand(int(documents[-1]) + 1, 1, device=vectors.device) >= self.pairless
            kept = kept * is_read[documents]
        return vectors * kept

    def rows(self, words: Int[Tensor, " n"], sentences: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """Returns the row of the table for each pair."""
        codes = self.codes[words]
        before = torch.zeros_like(codes)
        before[1:] = codes[:-1].masked_fill(sentences[1:] != sentences[:-1], 0)
        found: Tensor = ((before * _FACTOR + codes) >> 8) % self.table.num_embeddings
        return found
