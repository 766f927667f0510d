"""The word vectors that training starts from."""

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
"""In the place of a file: the training texts themselves."""
_SPREAD = 0.3
"""Standard deviation of the numbers of a vector that is learned from the texts."""


def initial_vectors(
    source: str, data: DocumentData, dim: int
) -> tuple[Float[Tensor, "words {dim}"], Bool[Tensor, " words"]]:
    """A vector for each word of the vocabulary, and which words have one.

    Args:
        source: A file of word vectors, or `CORPUS`: they are learned from the training texts, without their labels.
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
