"""Answers that are spans of a paragraph, by bidirectional attention flow (Seo et al. 2017)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import Attention, AttentionFlow
from zoo.attention.dropout import Dropout
from zoo.nn.embeddings import TokenEmbedding
from zoo.nn.rnn.modules import Kind
from zoo.tasks.answering.batch import ExtractiveQABatch
from zoo.tasks.answering.models.padded_rnn import PaddedRecurrent
from zoo.types import AnyFloat, PositiveInt, Probability, validate_ranges


@validate_ranges
class BiDAF(nn.Module):
    """H, U: states of paragraph and question; G: attention flow; M: two recurrent layers over G (Seo et al. 2017).

    The first word of the answer has the logits [G; M] w_1, and the last one [G; M'] w_2, where M' is one more recurrent
    layer over M (eq. 4 and the modeling and output layers of section 2). There are no vectors of characters and no
    highway network.

    Args:
        words: Size of the vocabulary, which the data provides.
        attend: `(dim, heads) -> Attention` for both directions; the paper's is `Dot` and `Softmax`.
        dim: Width of a word vector.
        hidden: Width of the state of one direction, the paper's d.
        cell: "lstm", as in the paper, or "gru".
        layers: Number of layers over G, two in the paper.
        forget: Second bias of the forget gates of all LSTMs before training; see `PaddedRecurrent`.
        product: What w_m starts as; see `AttentionFlow`.
        dropout: Of word vectors, between layers, and of what the last layers read.
    """

    def __init__(
        self,
        *,
        words: PositiveInt,
        attend: Callable[[int, int], Attention],
        dim: PositiveInt = 64,
        hidden: PositiveInt = 64,
        cell: Kind = "lstm",
        layers: PositiveInt = 2,
        forget: AnyFloat | None = None,
        product: AnyFloat | None = None,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.vectors = TokenEmbedding(words=words, dim=dim, dropout=dropout)
        same: dict[str, Any] = {"hidden": hidden, "cell": cell, "forget": forget}
        self.encoder = PaddedRecurrent(dim=dim, **same)
        states = self.encoder.width
        self.flow = AttentionFlow(dim=states, attend=attend, product=product)
        self.model = PaddedRecurrent(dim=4 * states, layers=layers, dropout=dropout, **same)
        self.model_end = PaddedRecurrent(dim=states, **same)
        self.dropout = Dropout(dropout)
        self.start = nn.Linear(5 * states, 1, bias=False)
        self.end = nn.Linear(5 * states, 1, bias=False)

    def forward(self, batch: ExtractiveQABatch[Any]) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n"]]:
        """Returns the logits of the first and of the last word of the answer; minus infinity at padding."""
        if not isinstance(batch, ExtractiveQABatch):
            raise ValueError("these questions are not about paragraphs")
        paragraph, question = (
            self.encoder(self.vectors(text.tokens), text) for text in (batch.passage, batch.question)
        )
        flow = self.flow(paragraph, question, batch.passage.is_real, batch.question.is_real)
        model = self.model(flow, batch.passage)
        model_end = self.model_end(model, batch.passage)
        start = self.start(self.dropout(torch.cat([flow, model], -1))).squeeze(-1)
        end = self.end(self.dropout(torch.cat([flow, model_end], -1))).squeeze(-1)
        padding = ~batch.passage.is_real
        return start.masked_fill(padding, -math.inf), end.masked_fill(padding, -math.inf)
