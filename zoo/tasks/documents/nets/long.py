"""One Transformer over a whole document, whose class token every word sees and which sees every word."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import Attend, MixerFactory, Position, Sinusoidal
from zoo.attention.dropout import Dropout
from zoo.attention.ranges import Count, Rate
from zoo.tasks.documents.batch import Documents
from zoo.tasks.documents.nets.encoder import Encoder
from zoo.tasks.vectors import WordVectors


class LongDocument(nn.Module):
    """A class token, then all words of the document; blocks, a norm, a head (Beltagy et al. 2020, section 3).

    With a `SlidingWindow` of one global token cost and memory are linear in the words of a document. The class token
    stands first and is that global token. The last feed-forward network runs for class tokens alone. What the class
    token reads in the last block is the first row of the map of the site `class_site`, whose first key it is itself.

    Args:
        words, classes: From the data: sizes of the vocabulary and of the label set.
        attend: `(dim, heads) -> Attend`, or a `MixerFactory`.
        dim: Width of a word vector, and of all other rows.
        layers: Number of blocks.
        heads: Heads in each; must divide `dim`.
        hidden: Hidden units of the feed-forward networks.
        position: Makes what is added to words, the class token being the first position: a class or partial of
            `zoo.attention.positions`, or None.
        relative: Makes what attention knows of positions: a class or partial of a `Position`.
        dropout: Of the input, of hidden units, of what blocks add and of the document's vector.
    """

    def __init__(
        self,
        *,
        words: Count,
        classes: Count,
        attend: Callable[[int, int], Attend] | MixerFactory,
        dim: Count = 128,
        layers: Count = 2,
        heads: Count = 4,
        hidden: Count = 256,
        position: Callable[..., nn.Module] | None = Sinusoidal,
        relative: Callable[..., Position] | None = None,
        dropout: Rate = 0.0,
    ) -> None:
        super().__init__()
        self.vectors = WordVectors(words=words, dim=dim)
        self.class_token = nn.Parameter(torch.randn(dim) * dim**-0.5)
        self.encoder = Encoder(
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

    def forward(self, batch: Documents) -> Float[Tensor, "b classes"]:
        """Logits of the classes."""
        tokens = self.class_token.expand(len(batch), -1)
        documents = torch.arange(len(batch), device=batch.words.device)
        owners, order = torch.cat([documents, batch.word_documents]).sort(stable=True)  # class tokens stand first
        x = torch.cat([tokens, self.vectors(batch.words)])[order]
        return self.head(self.dropout(self.encoder(x, owners, batch.text_lengths + 1, first=True)))  # type: ignore[no-any-return]
