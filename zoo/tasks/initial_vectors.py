"""Initial word vectors, read from a file or learned from the training texts."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from zoo import distributed
from zoo.data.cache import cached_arrays
from zoo.errors import ConfigError
from zoo.nn.embeddings import TokenEmbedding
from zoo.text import corpus_vectors, read_vectors
from zoo.text.cooccurrence import CORPUS_VERSION

Texts = Callable[[], Iterator[Int[np.ndarray, " n"]]]
"""Returns the vocabulary indices of the words of each training text, whenever it is called."""

CORPUS = "corpus"
"""Value of the option `vectors` that stands for the training texts in place of a file."""
_SPREAD = 0.3
"""Standard deviation of the entries of vectors that are learned from the training texts."""


def initialise_vectors(
    table: TokenEmbedding,
    source: str,
    words: Sequence[str],
    texts: Texts,
    cache: Path | None = None,
    spread: float | None = None,
) -> None:
    """Replaces the vectors of words before training, and says how many were found.

    Args:
        source: File of word vectors, or `CORPUS` to learn them from the training texts without their labels.
        words: Words of the vocabulary.
        texts: Training texts.
        cache: Folder of derived files, where learned vectors are kept; None: they are not.
        spread: Root mean square of the entries of all vectors, to which they are scaled by one factor. Default: those
            of a file stay as they are, and learned ones get a value with which documents were measured.
    """
    vectors, known = _look_up(source, words, texts, table.table.embedding_dim, cache)
    if spread is not None:
        size = vectors[known].double().square().mean().sqrt()
        vectors = vectors * (spread / size.clamp(min=torch.finfo(torch.float32).tiny)).float()
    table.start_from(vectors, known)
    if distributed.is_rank_zero():
        print(f"zoo: {source}: vectors of {int(known.sum()):,} of {len(words):,} tokens", file=sys.stderr)


def _look_up(
    source: str, words: Sequence[str], texts: Texts, dim: int, cache: Path | None
) -> tuple[Float[Tensor, "words {dim}"], Bool[Tensor, " words"]]:
    """Returns a vector for each word of the vocabulary, and a mask of the words that have one."""
    if source == CORPUS:
        if dim >= len(words):
            what = f"vectors of {dim} numbers cannot be learned for {len(words)} words"
            raise ConfigError(f"model.vectors={CORPUS}: {what}. Choose a smaller model.net.dim.")
        vectors = torch.from_numpy(_learn_vectors(texts, len(words), dim, cache))
        return vectors * _SPREAD * dim**0.5, vectors.any(1)
    found = read_vectors(source, words, dim=dim)
    row = {word: number for number, word in enumerate(found.words)}
    known = torch.tensor([word in row for word in words])
    return torch.from_numpy(found.vectors)[torch.tensor([row.get(word, 0) for word in words])], known


def _learn_vectors(texts: Texts, words: int, dim: int, cache: Path | None) -> Float32[np.ndarray, "words dim"]:
    """Returns the vectors that the training texts give; from the cache, if they have been learned before.

    The name in the cache has a hash of the words of all texts, so that it holds whatever decides on them. The texts are
    read twice instead of being kept.
    """
    digest = hashlib.blake2b(digest_size=16)
    for text in texts():
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
        cache,
        "corpus-vectors",
        made_of,
        lambda: {"vectors": corpus_vectors(map(np.ndarray.tolist, texts()), words=words, dim=dim)},
    )
    return np.array(found["vectors"])
