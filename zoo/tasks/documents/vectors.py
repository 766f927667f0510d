"""Initial word vectors, read from a file or learned from the training texts."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.errors import ConfigError
from zoo.text import corpus_vectors, read_vectors

if TYPE_CHECKING:
    from zoo.tasks.documents.data.document_data import DocumentData

CORPUS = "corpus"
"""Value of the option `vectors` that stands for the training texts in place of a file."""
_SPREAD = 0.3
"""Standard deviation of the entries of vectors that are learned from the training texts."""


def initial_vectors(
    source: str, data: DocumentData, dim: int
) -> tuple[Float[Tensor, "words {dim}"], Bool[Tensor, " words"]]:
    """Returns a vector for each word of the vocabulary, and a mask of the words that have one.

    Args:
        source: File of word vectors, or `CORPUS` to learn them from the training texts without their labels.
        data: Data whose vocabulary and training texts are used.
        dim: Width of a vector.
    """
    words = data.content.vocabulary.names
    if source == CORPUS:
        if dim >= len(words):
            what = f"vectors of {dim} numbers cannot be learned for {len(words)} words"
            raise ConfigError(f"model.vectors={CORPUS}: {what}. Choose a smaller model.net.dim.")
        texts = data.examples("train", training=True).entries
        numbers = (list(chain.from_iterable(text.sentences)) for text in texts)
        vectors = torch.from_numpy(corpus_vectors(numbers, words=len(words), dim=dim))
        return vectors * _SPREAD * dim**0.5, vectors.any(1)
    found = read_vectors(source, words, dim=dim)
    row = {word: number for number, word in enumerate(found.words)}
    known = torch.tensor([word in row for word in words])
    return torch.from_numpy(found.vectors)[torch.tensor([row.get(word, 0) for word in words])], known
