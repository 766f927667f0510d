"""Hierarchical attention networks: attention over words in sentences, then over sentences (Yang et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from zoo.attention import Attention, AttentionFactory, MixerFactory, Position, ScaledDot, Sinusoidal, Softmax
from zoo.attention.dropout import Dropout
from zoo.nn.embeddings import TokenEmbedding
from zoo.nn.rnn.modules import Recurrent
from zoo.tasks.documents.batch import DocumentBatch
from zoo.tasks.documents.models.attention_pooling import AttentionPooledLevel
from zoo.tasks.documents.models.bigrams import WordPairs
from zoo.tasks.documents.models.packed_transformer import PackedTransformerEncoder
from zoo.tasks.documents.small_data import choose_skip
from zoo.types import NonNegativeInt, PositiveInt, Probability, validate_ranges

_SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)
_SITES = {"words": "words.pool.attend", "sentences": "sentences.pool.attend"}


@validate_ranges
class HAN(nn.Module):
    """Word encoder, word attention, sentence encoder, sentence attention, a linear head (Yang et al. 2016, section 2).

    The encoders are bidirectional GRUs (eq. 1-4), and attention is `Pooling`. One pass over packed rows encodes all
    sentences of a batch, another all documents.

    Args:
        words, classes: Sizes of the vocabulary and of the label set, which the data provides.
        attend: `(dim, heads) -> Attention` for both attentions; the paper's is a dot product and softmax.
        dim: Width of a word vector.
        hidden: Width of the state of one direction, in both encoders.
        context: Width of the hidden representation u, and of the context vectors u_w and u_s.
        layers: Number of layers of each encoder.
        cell: "gru", as in the paper, or "lstm".
        dropout: Dropout of word vectors, between recurrent layers, of sentence vectors and of the document vector; the
            paper has none.
        pairs: Width of the vectors of word pairs (`WordPairs`). Both attentions combine them by the same weights as the
            states of the encoders, which do not read them. Default: no pairs, as in the paper.
        pair_dropout: Probability that the vector of a pair is set to zero in training.
        pairless: Probability that a document is read without pairs in training, so that the encoders learn to do so.
        skip: Whether both attentions combine word vectors too, by the same weights as the states of the encoders. The
            head then reads a weighted mean of word vectors, which few texts suffice to learn. Default: `choose_skip`;
            the paper has none.
        own_texts: From the data: 1 if the texts are the user's own.
    """

    SITES: ClassVar[dict[str, str]] = _SITES
    """The attention sites that read the words of a sentence and the sentences of a document."""

    def __init__(
        self,
        *,
        words: PositiveInt,
        classes: PositiveInt,
        attend: Callable[[int, int], Attention],
        dim: PositiveInt = 200,
        hidden: PositiveInt = 50,
        context: PositiveInt = 100,
        layers: PositiveInt = 1,
        cell: Literal["gru", "lstm"] = "gru",
        dropout: Probability = 0.0,
        pairs: NonNegativeInt = 0,
        pair_dropout: Probability = 0.0,
        pairless: Probability = 0.0,
        skip: bool | None = None,
        own_texts: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        self.vectors = TokenEmbedding(words=words, dim=dim, dropout=dropout)
        self.pairs = WordPairs(words=words, dim=pairs, dropout=pair_dropout, pairless=pairless) if pairs else None
        of_words, of_sentences = (
            Recurrent(dim=width, hidden=hidden, kind=cell, layers=layers, dropout=dropout)
            for width in (dim, 2 * hidden)
        )
        self.skip = choose_skip(own_texts) if skip is None else skip
        self.choices = ["skip=true"] if self.skip and skip is None else []
        """The options that were chosen, as overrides."""
        beside = pairs + (dim if self.skip else 0)
        self.words = AttentionPooledLevel(encoder=of_words, context=context, attend=attend, beside=beside)
        self.sentences = AttentionPooledLevel(encoder=of_sentences, context=context, attend=attend, beside=beside)
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(self.sentences.width, classes)

    def forward(self, batch: DocumentBatch[Any]) -> Float[Tensor, "b classes"]:
        """Returns the logits of the classes (eq. 11, before the softmax)."""
        vectors = self.vectors(batch.words)
        parts = [] if self.pairs is None else [self.pairs(batch.words, batch.sentences, batch.word_documents)]
        parts += [vectors] if self.skip else []
        beside = torch.cat(parts, 1) if parts else None
        sentences = self.dropout(self.words(vectors, batch.sentences, batch.sentence_lengths, beside))
        if beside is not None:
            sentences, beside = sentences.split([self.words.encoder.width, beside.shape[1]], 1)
        documents = self.sentences(sentences, batch.documents, batch.document_lengths, beside)
        return self.head(self.dropout(documents))  # type: ignore[no-any-return]


@validate_ranges
class HANTransformer(nn.Module):
    """`HAN` with Transformer encoders in place of recurrent ones.

    Args:
        words, classes: Sizes of the vocabulary and of the label set, which the data provides.
        attend: `(dim, heads) -> Attention` for the attention that reads sentences and documents.
        self_attend: `(dim, heads) -> Attention` for the self-attention of the encoders, or a `MixerFactory`.
        dim: Width of a word vector, and of all other rows.
        layers: Number of blocks of each encoder.
        heads: Number of heads per block; divides `dim`.
        hidden: Number of hidden units of the feed-forward networks.
        context: Width of the hidden representation u. Default: `dim`.
        position: Encoding that is added to words and to sentences: a class or partial of `zoo.attention.positions`, or
            None.
        relative: Position in the self-attention itself: a class or partial of a `Position`, or None.
        dropout: Dropout of the encoders' inputs, of hidden units, of the output of each sublayer and of the document
            vector.
    """

    SITES: ClassVar[dict[str, str]] = _SITES

    def __init__(
        self,
        *,
        words: PositiveInt,
        classes: PositiveInt,
        attend: Callable[[int, int], Attention],
        self_attend: Callable[[int, int], Attention] | MixerFactory = _SOFTMAX,
        dim: PositiveInt = 128,
        layers: PositiveInt = 1,
        heads: PositiveInt = 4,
        hidden: PositiveInt = 256,
        context: PositiveInt | None = None,
        position: Callable[..., nn.Module] | None = Sinusoidal,
        relative: Callable[..., Position] | None = None,
        dropout: Probability = 0.0,
    ) -> None:
        super().__init__()
        self.vectors = TokenEmbedding(words=words, dim=dim)
        of_words, of_sentences = (
            PackedTransformerEncoder(
                dim=dim,
                layers=layers,
                heads=heads,
                hidden=hidden,
                attend=self_attend,
                position=position,
                relative=relative,
                dropout=dropout,
            )
            for _ in range(2)
        )
        context = dim if context is None else context
        self.words = AttentionPooledLevel(encoder=of_words, context=context, attend=attend)
        self.sentences = AttentionPooledLevel(encoder=of_sentences, context=context, attend=attend)
        self.dropout = Dropout(dropout)
        self.head = nn.Linear(dim, classes)

    def forward(self, batch: DocumentBatch[Any]) -> Float[Tensor, "b classes"]:
        """Returns the logits of the classes."""
        sentences = self.words(self.vectors(batch.words), batch.sentences, batch.sentence_lengths)
        documents = self.sentences(sentences, batch.documents, batch.document_lengths)
        return self.head(self.dropout(documents))  # type: ignore[no-any-return]
