"""Whether a hypothesis follows from a premise, by attention in both directions (Chen et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.attention import Attention, TwoWayAttention
from zoo.attention.dropout import Dropout
from zoo.nn.embeddings import TokenEmbedding
from zoo.nn.rnn.modules import Kind
from zoo.tasks.answering.batch import NLIBatch
from zoo.tasks.answering.models.padded_rnn import PaddedRecurrent
from zoo.tasks.seq2seq.source import Source
from zoo.types import AnyFloat, PositiveInt, Probability, validate_ranges


@validate_ranges
class ESIM(nn.Module):
    """Words of both sentences are compared with what they attend to in the other one (Chen et al. 2017, section 3).

    m = [a; a'; a - a'; a * a'] for each word a (eq. 14-15), where a' is its context in the other sentence (eq. 11-13).
    A layer with ReLU, a recurrent layer, and the mean and maximum over the words of each sentence follow (eq. 16-20).
    The affinity is a^T W b, with W as in `TwoWayAttention`; the paper has no W.

    Args:
        words, answers: Sizes of the vocabulary and of the label set, which the data provides.
        attend: `(dim, heads) -> Attention` for both directions; the paper's is a dot product and softmax.
        dim: Width of a word vector.
        hidden: Width of the state of one direction.
        cell: "lstm", as in the paper, or "gru".
        forget: Second bias of an LSTM's forget gates before training; see `PaddedRecurrent`.
        identity: Whether W starts as the identity; see `TwoWayAttention`.
        dropout: Of word vectors and of what the last two layers read.
    """

    def __init__(
        self,
        *,
        words: PositiveInt,
        answers: PositiveInt,
        attend: Callable[[int, int], Attention],
        dim: PositiveInt = 64,
        hidden: PositiveInt = 64,
        cell: Kind = "lstm",
        forget: AnyFloat | None = None,
        identity: bool = False,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.vectors = TokenEmbedding(words=words, dim=dim, dropout=dropout)
        self.encoder = PaddedRecurrent(dim=dim, hidden=hidden, cell=cell, forget=forget)
        states = self.encoder.width
        self.both = TwoWayAttention(dim=states, attend=attend, identity=identity)
        self.compare = nn.Linear(4 * states, hidden)
        self.compose = PaddedRecurrent(dim=hidden, hidden=hidden, cell=cell, forget=forget)
        self.dropout = Dropout(dropout)
        self.fuse = nn.Linear(4 * self.compose.width, hidden)
        self.head = nn.Linear(hidden, answers)

    def forward(self, batch: NLIBatch[Any]) -> Float[Tensor, "b answers"]:
        """Returns the logits of the labels."""
        if not isinstance(batch, NLIBatch):
            raise ValueError("these hypotheses have no premise")
        premise, hypothesis = batch.premise, batch.hypothesis
        first, second = (self.encoder(self.vectors(text.tokens), text) for text in (premise, hypothesis))
        of_first, of_second = self.both(first, second, premise.is_real, hypothesis.is_real)
        read = [self._compose(first, of_first, premise), self._compose(second, of_second, hypothesis)]
        hidden = torch.tanh(self.fuse(self.dropout(torch.cat(read, -1))))
        return self.head(self.dropout(hidden))  # type: ignore[no-any-return]

    def _compose(
        self, states: Float[Tensor, "b n d"], contexts: Float[Tensor, "b n d"], text: Source
    ) -> Float[Tensor, "b e"]:
        """Returns the mean and the maximum over the words of a sentence."""
        compared = torch.cat([states, contexts, states - contexts, states * contexts], -1)
        composed = self.compose(F.relu(self.compare(compared)), text)
        mean = composed.sum(1) / text.lengths.unsqueeze(1)
        return torch.cat([mean, composed.masked_fill(~text.is_real.unsqueeze(-1), -math.inf).amax(1)], -1)
