"""From texts to the numbers of their tokens, before and after there is a vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool

from zoo.data.ragged import RaggedArray, RaggedBuilder
from zoo.tasks.seq2seq.text_codec import UNKNOWN, TextCodec
from zoo.text import Subwords, Tokenizer, Tokens
from zoo.text.vocabulary import Policy


class DatasetEncoder:
    """Tokenises texts, each once, and numbers their tokens by first occurrence until there is a vocabulary.

    Args:
        tokeniser: Splits the texts.
        numbers: Token -> number; two encoders that share it have one vocabulary.
        most: Texts are cut after so many tokens; None: they are not.
    """

    def __init__(self, tokeniser: Tokenizer, numbers: dict[str, int], most: int | None = None) -> None:
        self.tokeniser = tokeniser
        self.numbers = numbers
        self.most = most
        self.cut = 0
        """The number of texts that were cut."""
        self._texts = RaggedBuilder()

    def add(self, text: str) -> Tokens:
        """Adds a text, and returns its tokens."""
        numbers, whole = self.numbers, self.tokeniser.encode(text)
        tokens = first(whole, self.most)
        self.cut += len(tokens) < len(whole)
        self._texts.append([numbers.setdefault(name, len(numbers)) for name in tokens.names])
        return tokens

    @property
    def texts(self) -> RaggedArray:
        """The texts so far, in first-occurrence numbers."""
        return self._texts.build()

    def encode(self, language: TextCodec) -> RaggedArray:
        """The texts in the numbers of a language. A text without any token is one unknown token."""
        texts = self.texts
        table = np.array(language.vocabulary.encode(self.numbers), dtype=np.int32)
        values, lengths = table[texts.values], texts.lengths
        if lengths.all():
            return RaggedArray(values, texts.ends)
        values = np.insert(values, texts.ends[:-1][lengths == 0], UNKNOWN)
        return RaggedArray(values, np.concatenate([[0], np.maximum(lengths, 1).cumsum()]))


def first(tokens: Tokens, most: int | None) -> Tokens:
    """The first tokens of a text; None: all."""
    return Tokens(tokens.names[:most], tokens.spans[:most], tokens.words[:most])


def count_tokens(encoders: Iterable[DatasetEncoder], rows: Bool[np.ndarray, " n"]) -> Counter[str]:
    """How often each token occurs in some of the texts, of encoders that share their numbers."""
    found: Counter[str] = Counter()
    for each in encoders:
        texts = each.texts
        values = texts.values[np.repeat(rows, texts.lengths)]
        counts = np.bincount(values, minlength=len(each.numbers)).tolist()
        found.update({name: count for name, count in zip(each.numbers, counts, strict=True) if count})
    return found


def learned_language(
    encoders: Sequence[DatasetEncoder],
    rows: Bool[np.ndarray, " n"],
    *,
    min_count: int = 1,
    max_size: int | None = None,
    origin: TextCodec | None = None,
    policy: Policy = "unite",
) -> TextCodec:
    """Makes the language of some of the texts.

    Args:
        encoders: Encoders with the same tokeniser, which share their numbers.
        rows: Mask of the texts that the vocabulary is learned from.
        min_count: Minimum number of occurrences of a token. Subwords are all kept, so that every text can be written.
        max_size: Maximum number of tokens. Default: no limit.
        origin: Language of the checkpoint that training starts from, if its tokeniser is kept.
        policy: Which of the tokens of the origin and of the texts the language has.
    """
    tokeniser, counts = encoders[0].tokeniser, count_tokens(encoders, rows)
    if isinstance(tokeniser, Subwords):
        counts.update(tokeniser.pieces)  # also those that training lacks
        min_count = 1
    return TextCodec.from_counts(
        tokeniser, counts, min_count=min_count, max_size=max_size, origin=origin, policy=policy
    )
