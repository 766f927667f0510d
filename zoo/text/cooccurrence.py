"""Learns word vectors from co-occurrences: words that occur near the same words have similar vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float32, Int
from scipy import sparse

CORPUS_VERSION = 1
"""It changes when the same texts get other vectors, so that vectors that were kept are not used."""
_MIN_WORDS = 1 << 20
"""Minimum number of words whose co-occurrences are counted at once."""
_SMOOTHING = 0.75
"""Exponent of the counts of context words (Levy, Goldberg & Dagan 2015, section 3)."""


def corpus_vectors(
    texts: Iterable[Sequence[int]], *, words: int, dim: int, window: int = 5, seed: int = 0
) -> Float32[np.ndarray, "words dim"]:
    """Returns vectors of length 1, and zeros for words without co-occurrences.

    They are the rows of U sqrt(S) of the truncated SVD of the matrix of positive pointwise mutual information (Levy &
    Goldberg 2014, sections 3.2 and 4). Counts of contexts are smoothed, and nearer words count more (Levy, Goldberg &
    Dagan 2015, section 3).

    Args:
        texts: Vocabulary indices of the words of each text, in order.
        words: Size of the vocabulary.
        dim: Width of a vector, less than `words`.
        window: Maximum distance of co-occurring words; at distance d they count (window - d + 1) / window.
        seed: Seed of the approximate SVD (Halko et al. 2011).
    """
    from sklearn.utils.extmath import randomized_svd  # takes a second to import

    if not 0 < dim < words:
        raise ValueError(f"dim must be from 1 to {words - 1:,}, the number of words less one, got {dim}")
    counts = sparse.csr_matrix((words, words), dtype=np.float32)
    for part in _iter_batches(texts):
        counts = counts + _count_cooccurrences(*part, words, window)
    left, weights, _ = randomized_svd(_positive_pmi(counts), dim, n_iter=4, random_state=seed)
    vectors = left * np.sqrt(weights)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit_vectors: np.ndarray = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0).astype(
        np.float32
    )
    return unit_vectors


def _iter_batches(texts: Iterable[Sequence[int]]) -> Iterator[tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]]:
    """Yields the words of some texts, and the index of each word's text."""
    batch: list[Sequence[int]] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _MIN_WORDS:
            yield _concatenate(batch)
            batch, size = [], 0
    yield _concatenate(batch)


def _concatenate(texts: Sequence[Sequence[int]]) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    lengths = [len(text) for text in texts]
    words = np.fromiter(chain.from_iterable(texts), dtype=np.int64, count=sum(lengths))
    return words, np.repeat(np.arange(len(texts)), lengths)


def _count_cooccurrences(words: Int[np.ndarray, " n"], texts: Int[np.ndarray, " n"], size: int, window: int) -> Any:
    """Counts the weighted co-occurrences of each pair of words in a text, in either order."""
    counts = sparse.csr_matrix((size, size), dtype=np.float32)
    for distance in range(1, min(window, len(words) - 1) + 1):
        same = texts[:-distance] == texts[distance:]
        places = words[:-distance][same], words[distance:][same]
        near = np.full(int(same.sum()), (window - distance + 1) / window, dtype=np.float32)
        counts = counts + sparse.coo_matrix((near, places), shape=(size, size)).tocsr()
    return counts + counts.T


def _positive_pmi(counts: Any) -> Any:
    """Computes max(0, log p(word, context) / (p(word) p(context))) for each pair that occurs."""
    word_counts = np.asarray(counts.sum(1)).ravel()
    context_weights = word_counts**_SMOOTHING
    context_weights = context_weights / max(context_weights.sum(), 1.0)
    pairs = counts.tocoo()
    information = np.log(pairs.data / (word_counts[pairs.row] * context_weights[pairs.col]))
    return sparse.csr_matrix((np.maximum(information, 0.0).astype(np.float32), (pairs.row, pairs.col)), pairs.shape)
