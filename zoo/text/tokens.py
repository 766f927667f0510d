"""Tokens of a text, and the protocol of tokenizers."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

Span = tuple[int, int]
"""Position of the first character, and of the one after the last."""

NO_WORD = -1
"""Word number of white space."""

_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Tokens:
    """The tokens of a text, in order."""

    names: list[str]
    """Tokens as in the vocabulary."""
    spans: list[Span]
    """Span of each token in the text, without white space around words."""
    words: list[int]
    """Number of each token's word, from 0, or `NO_WORD`."""

    def __len__(self) -> int:
        return len(self.names)

    def word_spans(self) -> list[Span]:
        """Returns the span of each word."""
        spans: list[Span] = []
        for (start, end), word in zip(self.spans, self.words, strict=True):
            if word == len(spans):
                spans.append((start, end))
            elif word != NO_WORD:
                spans[word] = min(start, spans[word][0]), max(end, spans[word][1])
        return spans


class Tokenizer(Protocol):
    """Splits texts into tokens. A tokenizer restored from its `state` gives the same tokens."""

    def fit(self, texts: Iterable[str]) -> Tokenizer:
        """Returns a tokenizer learned from the texts, or `self` if the kind does not learn."""

    def encode(self, text: str) -> Tokens:
        """Splits a text."""

    def decode(self, names: Sequence[str]) -> str:
        """Joins tokens to a text."""

    def words(self, names: Sequence[str]) -> list[int]:
        """Returns the number of each token's word, from 0, or `NO_WORD`, in the text that `decode` makes of the tokens.

        For the tokens that `encode` returns, the result is `Tokens.words`.
        """

    def state(self) -> dict[str, Any]:
        """Returns the argument of `from_state` in plain types, for the checkpoint."""

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Restores a tokenizer from a state whose form has been checked."""


def tokens_of_words(text: str, tokens: Tokens) -> Sequence[Sequence[int]]:
    """Returns the tokens of each word between white space. White space belongs to no word."""
    words = [match.span() for match in _WORD.finditer(text)]
    starts = [start for start, _ in words]
    numbers: list[list[int]] = [[] for _ in words]
    for number, ((start, _), word_id) in enumerate(zip(tokens.spans, tokens.words, strict=True)):
        word = bisect_right(starts, start) - 1
        if word_id != NO_WORD and word >= 0 and start < words[word][1]:
            numbers[word].append(number)
    return numbers
