"""One Transformer over a whole document, with a class token that attends to every word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import Attention, MixerFactory, Position, Sinusoidal
from zoo.attention.dropout import Dropout
from zoo.nn.embeddings import TokenEmbedding
from zoo.tasks.documents.batch import DocumentBatch
from zoo.tasks.documents.models.packed_transformer import PackedTransformerEncoder
from zoo.types import PositiveInt, Probability, validate_ranges


@validate_ranges
class LongDocument(nn.Module):
    """Encodes a class token and all words of a document, and classifies the class token (Beltagy et al. 2020, sec. 3).

    With a `SlidingWindow` and one global token, time and memory are linear in the number of words. The class token
    stands first and is the global token. In the last block, the feed-forward network runs for class tokens only. The
    first row of the map of the site `class_site` has the weights of the class token in the last block; its first key is
    the class token itself.

    Args:
        words, classes: Sizes of the vocabulary and of the label set, which the data provides.
        attend: `(dim, heads) -> Attention`, or a `MixerFactory`.
        dim: Width of a word vector, and of all other rows.
        layers: Number of blocks.
        heads: Number of heads per block; divides `dim`.
        hidden: Number of hidden units of the feed-forward networks.
        position: Encoding that is added to the class token and the words, in this order: a class or partial of
            `zoo.attention.positions`, or None.
        relative: Position in the attention itself: a class or partial of a `Position`, or None.
        dropout: Dropout of the input, of hidden units, of the output of each sublayer and of the document vector.
    """

    def __init__(
        self,
        *,
        words: PositiveInt,
        classes: PositiveInt,
        attend: Callable[[int, int], Attention] | MixerFactory,
        dim: PositiveInt = 128,
        layers: PositiveInt = 2,
        heads: PositiveInt = 4,
        hidden: PositiveInt = 256,
        position: Callable[..., nn.Module] | None = Sinusoidal,
        relative: Callable[..., Position] | None = None,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.vectors = TokenEmbedding(words=words, dim=dim)
        self.class_token = nn.Parameter(torch.randn(dim) * dim**-0.5)
        self.encoder = PackedTransformerEncoder(
            dim=dim,
            layers=layers,
            heads=heads,
            hidden=hidden,
            attend=attend,
            position=position,
            relative=relative,
            dropout=dropout,
        )
        self.class_site = f"encoder.layers.{layers - 1}.mixer.attend"
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(dim, classes)

    def forward(self, batch: DocumentBatch[Any]) -> Float[Tensor, "b classes"]:
        """Returns the logits of the classes."""
        tokens = self.class_token.expand(len(batch), -1)
        documents = torch.arange(len(batch), device=batch.words.device)
        owners, order = torch.cat([documents, batch.word_documents]).sort(stable=True)  # class tokens stand first
        x = torch.cat([tokens, self.vectors(batch.words)])[order]
        return self.head(self.dropout(self.encoder(x, owners, batch.text_lengths + 1, first=True)))  # type: ignore[no-any-return]
