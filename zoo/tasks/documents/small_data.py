"""Defaults for texts of the user's own: some thousand as a rule, of which a net learns the order of words by heart."""

from __future__ import annotations

AUTO = "auto"
"""Value of the option `vectors` that stands for `choose_vectors`."""
FEW_TEXTS = 500
"""A training split with fewer texts is small."""


def choose_skip(own_texts: int) -> bool:
    """Returns whether attention combines word vectors too, beside the states of the encoders.

    Args:
        own_texts: 1 if the texts are the user's own; 0 if they are published or generated.
    """
    return own_texts > 0


def choose_vectors(own_texts: int, words: int, dim: int) -> str | None:
    """Returns where initial word vectors come from: of the user's own texts, if they have more words than dimensions.

    Args:
        own_texts: As in `choose_skip`.
        words: Size of the vocabulary.
        dim: Width of a word vector.
    """
    return "corpus" if own_texts and words > dim else None


def choose_min_count(own_texts: int, examples: int) -> int:
    """Returns the number of occurrences below which a token is unknown: 2, unless there are few texts.

    Args:
        own_texts: As in `choose_skip`.
        examples: Number of training texts.
    """
    return 2 if own_texts and examples >= FEW_TEXTS else 1


def choose_word_dropout(own_texts: int, kind: str) -> float:
    """Returns the share of training words that the unknown word replaces, so that no text is learned by its rare words.

    Args:
        own_texts: As in `choose_skip`.
        kind: Kind of tokens.
    """
    return 0.3 if own_texts and kind == "words" else 0.0
