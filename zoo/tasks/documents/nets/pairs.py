"""The vectors of pairs of words that stand side by side."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention.dropout import dropout
from zoo.attention.ranges import Count, Rate

_FACTOR = 0x2545F491
"""An odd number below 2^30: with codes below 2^32 no product exceeds 64 bits."""


class WordPairs(nn.Module):
    """A learned vector for each word and the one before it in its sentence (Joulin et al. 2016, section 2.1).

    Vectors are found by a hash of both names, so that no list of pairs is kept, and a pair has the same vector in every
    vocabulary. Different pairs may share one. All start at zero.

    Args:
        words: Size of the vocabulary.
        dim: Width of a vector.
        rows: Number of vectors.
        dropout: Probability that the vector of a pair is left out in training, as a whole.
        pairless: Share of documents that have no pairs in training. What is left is not scaled up.
    """

    codes: Int[Tensor, " words"]

    def __init__(
        self, *, words: Count, dim: Count, rows: Count = 2**19, dropout: Rate = 0.0, pairless: Rate = 0.0
    ) -> None:
        super().__init__()
        if min(words, dim, rows) < 1:
            raise ValueError(f"words, dim and rows must be 1 or more, got {words}, {dim} and {rows}")
        self.table = nn.Embedding(rows, dim)
        nn.init.zeros_(self.table.weight)
        self.dropout = dropout
        self.pairless = pairless
        self.register_buffer("codes", torch.arange(1, words + 1))

    def name(self, words: Sequence[str]) -> None:
        """Takes the names of the vocabulary; before, a word's code is its number.

        Args:
            words: All of them, by number.
        """
        if len(words) != len(self.codes):
            raise ValueError(f"{len(words)} names for {len(self.codes)} words")
        self.codes.copy_(torch.tensor([zlib.crc32(word.encode()) for word in words]))

    def forward(
        self, words: Int[Tensor, " n"], sentences: Int[Tensor, " n"], documents: Int[Tensor, " n"]
    ) -> Float[Tensor, "n d"]:
        """The vectors of all words of packed sentences, each with the one before it.

        Args:
            sentences: The number of the sentence that each word is in. The first of a sentence has none before it.
            documents: The number of the document that each word is in.
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
        """The row of the table that each pair has."""
        codes = self.codes[words]
        before = torch.zeros_like(codes)
        before[1:] = codes[:-1].masked_fill(sentences[1:] != sentences[:-1], 0)
        found: Tensor = ((before * _FACTOR + codes) >> 8) % self.table.num_embeddings
        return found
