"""The weights of words and sentences, from recorded maps of packed batches."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from zoo.attention import AttentionMap, EdgeSupport


def weights_of(found: AttentionMap) -> Float[Tensor, " n"]:
    """The weight of each row of a packed batch within its own sequence: of a word, or of a sentence."""
    support = _edges(found)
    weights = found.weights.new_zeros(support.pattern.shape[1])
    return weights.index_copy(0, support.source.long(), found.weights.squeeze(1))


def effective_weights(words: AttentionMap, sentences: AttentionMap) -> Float[Tensor, " w"]:
    """The weight of each word in its document: that in its sentence, times that of the sentence.

    Args:
        words: The map of words within sentences.
        sentences: The map of sentences within documents, of the same batch.
    """
    support = _edges(words)
    of_sentence = weights_of(sentences)
    found = words.weights.squeeze(1) * of_sentence.index_select(0, support.target)
    return found.new_zeros(support.pattern.shape[1]).index_copy(0, support.source.long(), found)


def _edges(found: AttentionMap) -> EdgeSupport:
    if not isinstance(found.support, EdgeSupport) or found.weights.shape[1] != 1:
        raise ValueError(f"{found.site} is no map of words to sentences or of sentences to documents")
    return found.support
