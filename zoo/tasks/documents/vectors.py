"""Initial word vectors, read from a file or learned from the training texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from zoo.data.cache import cached_arrays
from zoo.errors import ConfigError
from zoo.text import corpus_vectors, read_vectors
from zoo.text.cooccurrence import CORPUS_VERSION

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
        vectors = torch.from_numpy(_of_corpus(data, len(words), dim))
        return vectors * _SPREAD * dim**0.5, vectors.any(1)
    found = read_vectors(source, words, dim=dim)
    row = {word: number for number, word in enumerate(found.words)}
    known = torch.tensor([word in row for word in words])
    return torch.from_numpy(found.vectors)[torch.tensor([row.get(word, 0) for word in words])], known


def _of_corpus(data: DocumentData, words: int, dim: int) -> Float32[np.ndarray, "words dim"]:
    """Returns the vectors that the training texts give; from the cache, if they have been learned before.

    The name in the cache has a hash of the words of all texts, so that it holds whatever decides on them. The texts are
    read twice instead of being kept.
    """
    digest = hashlib.blake2b(digest_size=16)
    for text in _texts(data):
        digest.update(len(text).to_bytes(8, "little"))
        digest.update(text.astype("<i8", copy=False).tobytes())
    made_of = {
        "texts": digest.hexdigest(),
        "words": words,
        "dim": dim,
        "version": CORPUS_VERSION,
        **{name: version(name) for name in ("numpy", "scipy", "scikit-learn")},
    }
    found = cached_arrays(
        data.source.reading.cache,
        "corpus-vectors",
        made_of,
        lambda: {"vectors": corpus_vectors(map(np.ndarray.tolist, _texts(data)), words=words, dim=dim)},
    )
    return np.array(found["vectors"])


def _texts(data: DocumentData) -> Iterator[Int[np.ndarray, " n"]]:
    """Yields the vocabulary indices of the words of each training text."""
    for text in data.examples("train", training=True).entries:
        yield np.fromiter(chain.from_iterable(text.sentences), dtype=np.int64)
