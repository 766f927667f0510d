"""Tokens of a text, with their places in it; what every tokeniser can do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

Span = tuple[int, int]
"""Of characters of the text: the first, and the one after the last."""

NO_WORD = -1
"""In place of a word's number: white space."""


@dataclass(frozen=True)
class Tokens:
    """The tokens of one text, in its order."""

    names: list[str]
    """As a vocabulary has them."""
    spans: list[Span]
    """Where each stands in the text that was given, without white space around it."""
    words: list[int]
    """The number of the word that each belongs to, from 0, or `NO_WORD`."""

    def __len__(self) -> int:
        return len(self.names)

    def word_spans(self) -> list[Span]:
        """Where each word stands."""
        found: list[Span] = []
        for (start, end), word in zip(self.spans, self.words, strict=True):
            if word == len(found):
                found.append((start, end))
            elif word != NO_WORD:
                found[word] = min(start, found[word][0]), max(end, found[word][1])
        return found


class Tokeniser(Protocol):
    """Parts texts into tokens. One that is restored from its `state` parts them alike."""

    def fit(self, texts: Iterable[str]) -> Tokeniser:
        """One that has learned from these texts; itself, where there is nothing to learn."""

    def encode(self, text: str) -> Tokens: ...

    def decode(self, names: Sequence[str]) -> str:
        """A text of these tokens."""

    def state(self) -> dict[str, Any]:
        """In plain types, for the checkpoint."""

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """What `state` gave, whose form was checked."""
