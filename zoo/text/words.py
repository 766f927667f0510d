"""Tokenizers that do not learn: words and characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Self

import regex

from zoo.text.tokens import NO_WORD, Span, Tokens

WORD = r"[\w\p{M}]+(?:['’][\w\p{M}]+)*|[^\w\s\p{M}]"
"""Pattern of words: letters, digits and marks, with apostrophes between them, or one other character."""

_WORD = regex.compile(WORD)
_ASCII_WORD = re.compile(r"\w+(?:'\w+)*|[^\w \t-\r]", re.ASCII)
"""Pattern that finds the same words as `WORD` in ASCII text, in half the time."""
_CLOSING, _OPENING = (
    frozenset(".,;:!?)]}%…"),
    frozenset("([{"),
)  # without quotation marks, which close in one language and open in another


class _FixedTokenizer:
    """A tokenizer whose only option is the case."""

    kind: ClassVar[str]

    def __init__(self, *, lower: bool = False) -> None:
        self.lower = lower

    def fit(self, texts: Iterable[str]) -> Self:
        return self

    def state(self) -> dict[str, Any]:
        return {"kind": self.kind, "lower": self.lower}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        return cls(lower=state["lower"])


class Words(_FixedTokenizer):
    """Splits texts into words and single punctuation marks.

    Args:
        lower: If True, tokens are converted to lower case.
    """

    kind = "words"

    def encode(self, text: str) -> Tokens:
        spans = _find_word_spans(text)
        names = [text[start:end] for start, end in spans]
        return Tokens([name.lower() for name in names] if self.lower else names, spans, list(range(len(spans))))

    def decode(self, names: Sequence[str]) -> str:
        """Joins words with spaces, except before closing and after opening punctuation."""
        parts: list[str] = []
        for name in names:
            if parts and name not in _CLOSING and parts[-1] not in _OPENING:
                parts.append(" ")
            parts.append(name)
        return "".join(parts)

    def words(self, names: Sequence[str]) -> list[int]:
        return list(range(len(names)))


class Characters(_FixedTokenizer):
    """Splits texts into characters, including white space. `decode` restores the text, except for case if `lower`.

    Args:
        lower: If True, tokens are converted to lower case.
    """

    kind = "characters"

    def encode(self, text: str) -> Tokens:
        words = [NO_WORD] * len(text)
        for number, (start, end) in enumerate(_find_word_spans(text)):
            words[start:end] = [number] * (end - start)
        names = [letter.lower() for letter in text] if self.lower else list(text)
        return Tokens(names, [(place, place + 1) for place in range(len(text))], words)

    def decode(self, names: Sequence[str]) -> str:
        return "".join(names)

    def words(self, names: Sequence[str]) -> list[int]:
        ends = [*accumulate(map(len, names), initial=0)]
        return word_ids(_find_word_spans("".join(names)), pairwise(ends), ends[-1])


def word_ids(words: Iterable[Span], spans: Iterable[Span], length: int) -> list[int]:
    """Returns the number of the first word that each span overlaps, or `NO_WORD`.

    Args:
        words: Span of each word of a text.
        spans: Spans of characters of the text.
        length: Length of the text.
    """
    owner = [NO_WORD] * length
    for number, (start, end) in enumerate(words):
        owner[start:end] = [number] * (end - start)
    return [next((word for word in owner[start:end] if word != NO_WORD), NO_WORD) for start, end in spans]


def _find_word_spans(text: str) -> list[Span]:
    return [match.span() for match in (_ASCII_WORD if text.isascii() else _WORD).finditer(text)]
