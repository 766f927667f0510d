"""A language as a model knows it: how its texts become numbers, and numbers texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from zoo.errors import CheckpointError
from zoo.text import Tokenizer, Tokens, Vocabulary, tokenizer_from_state
from zoo.text.tokens import NO_WORD
from zoo.text.vocabulary import Policy, Special

SPECIALS: tuple[Special, ...] = ("pad", "unknown", "begin", "end")
"""The special tokens of every vocabulary of a text that is written or read by a generating model."""
PAD, UNKNOWN, BEGIN, END = range(4)


class WordSegmentation(NamedTuple):
    """The words of a text, and the number of each token's word, or `NO_WORD`."""

    words: Sequence[str]
    owners: Sequence[int]

    @classmethod
    def from_pieces(cls, pieces: Sequence[str], owners: Sequence[int]) -> WordSegmentation:
        """Joins tokens, as they stand in a text, to words."""
        words = [""] * (max(owners, default=NO_WORD) + 1)
        for piece, owner in zip(pieces, owners, strict=True):
            if owner != NO_WORD:
                words[owner] += piece
        return cls(words, owners)


@dataclass(frozen=True, eq=False)
class TextCodec:
    """A tokeniser and the vocabulary of its tokens."""

    tokeniser: Tokenizer
    vocabulary: Vocabulary

    def __len__(self) -> int:
        return len(self.vocabulary)

    @classmethod
    def from_counts(
        cls,
        tokeniser: Tokenizer,
        counts: Counter[str],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        origin: TextCodec | None = None,
        policy: Policy = "unite",
    ) -> TextCodec:
        """Makes the language of counted tokens; for `origin` and `policy` see `Vocabulary.from_counts`."""
        names = () if origin is None else origin.vocabulary.tokens
        return cls(
            tokeniser,
            Vocabulary.from_counts(
                counts, specials=SPECIALS, min_count=min_count, max_size=max_size, origin=names, policy=policy
            ),
        )

    @classmethod
    def from_state(cls, tokeniser: dict[str, Any], tokens: Sequence[str]) -> TextCodec:
        """Restores a language from the states of its tokeniser and its vocabulary.

        Raises:
            CheckpointError: The states are not those of a language.
        """
        vocabulary = Vocabulary.from_state(list(tokens))
        if vocabulary.tokens[: len(SPECIALS)] != Vocabulary([], SPECIALS).tokens:
            raise CheckpointError("the checkpoint is damaged: a vocabulary does not begin with its special tokens")
        return cls(tokenizer_from_state(tokeniser), vocabulary)

    def encode(self, text: str) -> tuple[Tokens, list[int]]:
        """Splits a text, and returns its tokens with their numbers."""
        tokens = self.tokeniser.encode(text)
        return tokens, self.vocabulary.encode(tokens.names)

    def text(self, numbers: Iterable[int]) -> str:
        """Joins tokens to a text. Special tokens are left out, except the unknown token, and so is space at the end."""
        text: str = self.tokeniser.decode(self.vocabulary.decode(numbers))
        return text.rstrip()

    def respell(self, text: str) -> str:
        """Returns a text as a model that makes no mistake writes it: split into tokens and joined again.

        Written texts are compared with references that are spelled in this way, so that white space and case that no
        token holds are no mistakes.
        """
        spelled: str = self.tokeniser.decode(self.tokeniser.encode(text).names)
        return spelled.rstrip()

    def text_with(self, numbers: Sequence[int], replaced: Mapping[int, str]) -> str:
        """Joins tokens to a text, with some of them replaced by words, by their places."""
        names: list[str] = []
        for place, number in enumerate(numbers):
            known = self.vocabulary.decode([number])
            names += self.tokeniser.encode(replaced[place]).names if place in replaced else known
        text: str = self.tokeniser.decode(names)
        return text

    def pieces(self, numbers: Iterable[int]) -> list[str]:
        """Returns each token as it is written, for labels; special tokens by their names."""
        names = [self.vocabulary.tokens[number] for number in numbers]
        specials = self.vocabulary.tokens[: len(SPECIALS)]
        return [name if name in specials else self.tokeniser.decode([name]).strip() or name for name in names]

    def segment(self, numbers: Iterable[int]) -> WordSegmentation:
        """Returns the words of tokens, none of which is special except the unknown token."""
        names = self.vocabulary.decode(numbers)
        owners = self.tokeniser.words(names)
        parts: list[list[str]] = [[] for _ in range(max(owners, default=NO_WORD) + 1)]
        for name, owner in zip(names, owners, strict=True):
            if owner != NO_WORD:
                parts[owner].append(name)
        return WordSegmentation([self.tokeniser.decode(each).strip() for each in parts], owners)
