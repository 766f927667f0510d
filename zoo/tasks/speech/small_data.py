"""Defaults for few recordings, which a listener and a speller would otherwise learn by heart without an alignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from zoo.text.tokenizer_factory import Kind

FEW_RECORDINGS = 500
"""A training split with fewer recordings is small."""
CTC_OF_FEW = 0.3
"""Share of a CTC branch in the loss on few recordings that are spelled: it makes the listener hear characters in their
order. Of tokens that are words there are few in a recording, and a branch cost accuracy (docs/results/speech.md)."""
_OFTEN = 5
"""Occurrences of a word from which it can be learned as a whole."""


def choose_ctc(recordings: int | None, *, words: bool = False) -> float:
    """Returns the share of the CTC branch in the loss.

    Args:
        recordings: Number of training recordings; None: it is not known.
        words: Whether tokens are words.
    """
    return CTC_OF_FEW if recordings is not None and recordings < FEW_RECORDINGS and not words else 0.0


def choose_tokeniser(transcripts: Iterable[str]) -> Kind:
    """Returns words for few transcripts of few different words, such as commands and digits; otherwise characters."""
    count, words = 0, Counter[str]()
    for text in transcripts:
        count += 1
        words.update(text.split())
    is_closed = bool(words) and min(words.values()) >= _OFTEN
    return "words" if is_closed and count < FEW_RECORDINGS else "characters"
