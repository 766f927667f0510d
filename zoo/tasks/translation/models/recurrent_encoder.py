"""The recurrent encoder of texts."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from zoo.attention.dropout import Dropout
from zoo.nn.embeddings import TokenEmbedding
from zoo.nn.rnn.modules import Kind, Recurrent, padded_rows
from zoo.nn.seq2seq.state import Encoded
from zoo.tasks.seq2seq.source import Source
from zoo.types import PositiveInt, Probability, validate_ranges


@validate_ranges
class RecurrentEncoder(nn.Module):
    """[forward states; backward states] of each word (Bahdanau et al. 2015, section 3.2), of real words alone.

    The summary is the forward state of the last word and the backward state of the first.

    Args:
        words: Size of the vocabulary.
        dim: Width of a word vector.
        hidden: Width of the state of one direction.
        cell: "gru" or "lstm".
        layers: Number of layers.
        keys: What words are compared by: their "state", as in the paper; or "both", their state and their vector. A
            state knows the words around it too, and a key of it alone may stand for a neighbour.
        dropout: Of word vectors and of what one layer gives to the next.
        out_dropout: Of states.
    """

    def __init__(
        self,
        *,
        words: PositiveInt,
        dim: PositiveInt = 256,
        hidden: PositiveInt = 256,
        cell: Kind = "gru",
        layers: PositiveInt = 1,
        keys: Literal["state", "both"] = "state",
        dropout: Probability = 0.0,
        out_dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        if keys not in ("state", "both"):
            raise ValueError(f"keys is 'state' or 'both', got {keys!r}")
        self.vectors = TokenEmbedding(words=words, dim=dim, dropout=dropout)
        self.recurrent = Recurrent(dim=dim, hidden=hidden, kind=cell, layers=layers, dropout=dropout)
        self.dropout = Dropout(out_dropout)
        self.width = self.summary_width = self.recurrent.width
        self.has_vectors = keys == "both"
        self.key_width = self.width + dim if self.has_vectors else self.width

    def forward(self, source: Source) -> Encoded:
        is_real, lengths = source.is_real, source.lengths
        at = is_real.flatten().nonzero().squeeze(1)
        vectors = self.vectors(source.tokens.flatten()[at])
        rows = self.recurrent(vectors, at.div(is_real.shape[1], rounding_mode="floor"), lengths)
        last = lengths.cumsum(0) - 1
        forward, backward = rows.chunk(2, -1)
        summary = torch.cat([forward[last], backward[last + 1 - lengths]], -1)
        rows = self.dropout(rows)
        states = padded_rows(rows, at, is_real.shape)
        keys = torch.cat([states, padded_rows(vectors, at, is_real.shape)], -1) if self.has_vectors else None
        return Encoded(states, source.support, summary, keys)
