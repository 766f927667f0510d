"""One encoder and one attention over the whole text, as a baseline of the hierarchy (Jain & Wallace 2019)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention import Attention
from zoo.attention.dropout import Dropout
from zoo.nn.embeddings import TokenEmbedding
from zoo.nn.rnn.modules import Recurrent
from zoo.tasks.documents.batch import DocumentBatch
from zoo.tasks.documents.models.attention_pooling import AttentionPooledLevel
from zoo.types import PositiveInt, Probability, validate_ranges


@validate_ranges
class FlatAttention(nn.Module):
    """y = W sum_t a_t h_t + b, a = softmax(v · tanh(W_1 h_t + b_1)), over all words (Jain & Wallace 2019, section 2).

    h_t is the state of a bidirectional LSTM, or ReLU(W_x x_t + b_x), which does not depend on other words.

    Args:
        words, classes: Sizes of the vocabulary and of the label set, which the data provides.
        attend: `(dim, heads) -> Attention`; the paper's are additive (a product of u and v, with softmax) and scaled.
        encoder: "lstm", "gru", or "average", which encodes each word by itself.
        dim: Width of a word vector.
        hidden: Width of the state of one direction; "average" has twice as many units.
        context: Width of the hidden representation W_1 h_t + b_1.
        layers: Number of layers of a recurrent encoder.
        dropout: Dropout of word vectors, between recurrent layers and of the document vector; the paper has none.
    """

    SITES: ClassVar[dict[str, str]] = {"words": "words.pool.attend"}
    """The attention site that reads the words of a document."""

    def __init__(
        self,
        *,
        words: PositiveInt,
        classes: PositiveInt,
        attend: Callable[[int, int], Attention],
        encoder: Literal["lstm", "gru", "average"] = "lstm",
        dim: PositiveInt = 300,
        hidden: PositiveInt = 128,
        context: PositiveInt = 128,
        layers: PositiveInt = 1,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        if encoder == "average" and layers != 1:
            raise ValueError(f"layers={layers} needs a recurrent encoder; encoder='average' has one layer")
        self.vectors = TokenEmbedding(words=words, dim=dim, dropout=dropout)
        made: nn.Module = (
            WordByWord(dim=dim, width=2 * hidden)
            if encoder == "average"
            else Recurrent(dim=dim, hidden=hidden, kind=encoder, layers=layers, dropout=dropout)
        )
        self.words = AttentionPooledLevel(encoder=made, context=context, attend=attend)
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, batch: DocumentBatch[Any]) -> Float[Tensor, "b classes"]:
        """Returns the logits of the classes."""
        documents = self.words(self.vectors(batch.words), batch.word_documents, batch.text_lengths)
        return self.head(self.dropout(documents))  # type: ignore[no-any-return]


@validate_ranges
class WordByWord(nn.Module):
    """ReLU(W x + b) of each word.

    Args:
        dim: Width of a word vector.
        width: Width of the result.
    """

    def __init__(self, *, dim: PositiveInt, width: PositiveInt) -> None:
        super().__init__()
        self.width = width
        self.project = nn.Linear(dim, width)

    def forward(
        self, x: Float[Tensor, "n d"], sequences: Int[Tensor, " n"], lengths: Int[Tensor, " s"]
    ) -> Float[Tensor, "n {self.width}"]:
        return self.project(x).relu()  # type: ignore[no-any-return]
