"""One encoder and one attention over the whole text, for comparison with the hierarchy (Jain & Wallace 2019)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from zoo.attention import Attend
from zoo.attention.dropout import Dropout
from zoo.attention.ranges import Count, Rate
from zoo.tasks.documents.batch import Documents
from zoo.tasks.documents.nets.levels import Level
from zoo.tasks.recurrent import Recurrent
from zoo.tasks.vectors import WordVectors


class FlatAttention(nn.Module):
    """y = W sum_t a_t h_t + b, a = softmax(v · tanh(W_1 h_t + b_1)), over all words (Jain & Wallace 2019, section 2).

    h is a bidirectional LSTM of the word vectors, or each word's own ReLU(W_x x_t + b_x), which knows nothing of the
    words around it.

    Args:
        words, classes: From the data: sizes of the vocabulary and of the label set.
        attend: `(dim, heads) -> Attend`; the paper's are additive (a dot product of u and v, with softmax) and scaled.
        encoder: "lstm", "gru", or "average": each word on its own.
        dim: Width of a word vector.
        hidden: Width of the state of one direction; "average" has twice as many units.
        context: Width of the hidden representation that attention compares.
        layers: Layers of a recurrent encoder.
        dropout: Of word vectors, of what one recurrent layer gives to the next and of the document's vector; the
            paper has none.
    """

    SITES: ClassVar[dict[str, str]] = {"words": "words.pool.attend"}
    """The site whose map is of the words of documents."""

    def __init__(
        self,
        *,
        words: Count,
        classes: Count,
        attend: Callable[[int, int], Attend],
        encoder: Literal["lstm", "gru", "average"] = "lstm",
        dim: Count = 300,
        hidden: Count = 128,
        context: Count = 128,
        layers: Count = 1,
        dropout: Rate = 0.0,
    ) -> None:
        super().__init__()
        if encoder == "average" and layers != 1:
            raise ValueError(f"layers={layers} is of a recurrent encoder, and encoder='average' has one layer")
        self.vectors = WordVectors(words=words, dim=dim, dropout=dropout)
        made: nn.Module = (
            WordByWord(dim=dim, width=2 * hidden)
            if encoder == "average"
            else Recurrent(dim=dim, hidden=hidden, kind=encoder, layers=layers, dropout=dropout)
        )
        self.words = Level(encoder=made, context=context, attend=attend)
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, batch: Documents) -> Float[Tensor, "b classes"]:
        """Logits of the classes."""
        documents = self.words(self.vectors(batch.words), batch.word_documents, batch.text_lengths)
        return self.head(self.dropout(documents))  # type: ignore[no-any-return]


class WordByWord(nn.Module):
    """ReLU(W x + b) of each word.

    Args:
        dim: Width of a word vector.
        width: Width of the result.
    """

    def __init__(self, *, dim: Count, width: Count) -> None:
        super().__init__()
        self.width = width
        self.project = nn.Linear(dim, width)

    def forward(
        self, x: Float[Tensor, "n d"], sequences: Int[Tensor, " n"], lengths: Int[Tensor, " s"]
    ) -> Float[Tensor, "n {self.width}"]:
        return self.project(x).relu()  # type: ignore[no-any-return]
