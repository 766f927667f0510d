"""Tokens of a text, with their places in it; what every tokeniser can do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from zoo.errors import CheckpointError
from zoo.forms import MalformedError, Where, expect

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


_KINDS = ("words", "characters", "subwords")
_PIECE = Where("a text of at most 1,024 characters", lambda value: type(value) is str and 0 < len(value) <= 1 << 10)
_MERGE = Where("two pieces and a space", lambda value: type(value) is str and 3 <= len(value) <= 1 << 11)

TOKENISER = {
    "kind": Where(f"one of {', '.join(_KINDS)}", lambda value: type(value) is str and value in _KINDS),
    "lower": bool,
    "pieces?": [_PIECE],
    "merges?": [_MERGE],
}
"""The form of a tokeniser's state."""


def tokeniser_from_state(state: Any) -> Tokeniser:
    """The tokeniser of a checkpoint.

    Raises:
        CheckpointError: It is not what `state` gives.
    """
    from zoo.text.subwords import Subwords
    from zoo.text.words import Characters, Words

    try:
        expect(state, TOKENISER, "the tokeniser")
    except MalformedError as error:
        raise CheckpointError(f"the checkpoint is damaged: {error}") from error
    kinds: dict[str, type[Tokeniser]] = {"words": Words, "characters": Characters, "subwords": Subwords}
    return kinds[state["kind"]].from_state(state)
