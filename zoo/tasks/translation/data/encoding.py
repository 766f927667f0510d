"""From pairs of texts to the numbers of their tokens, and from links of words to links of tokens."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from jaxtyping import Bool, Int

from zoo.data.rows import Rows, RowsInMaking
from zoo.tasks.generation.language import UNKNOWN, Language
from zoo.text import Tokeniser, Tokens
from zoo.text.tokens import NO_WORD

_WORD = re.compile(r"\S+")


class Encoder:
    """Tokenises texts, each once, and numbers their tokens by first occurrence until there is a vocabulary.

    Args:
        tokeniser: Splits the texts.
        numbers: Token -> number; two encoders that share it have one vocabulary.
        most: Texts are cut after so many tokens; None: they are not.
    """

    def __init__(self, tokeniser: Tokeniser, numbers: dict[str, int], most: int | None = None) -> None:
        self.tokeniser = tokeniser
        self.numbers = numbers
        self.most = most
        self.cut = 0
        """The number of texts that were cut."""
        self._texts = RowsInMaking()

    def add(self, text: str) -> Tokens:
        """Adds a text, and returns its tokens."""
        numbers, whole = self.numbers, self.tokeniser.encode(text)
        tokens = first(whole, self.most)
        self.cut += len(tokens) < len(whole)
        self._texts.append([numbers.setdefault(name, len(numbers)) for name in tokens.names])
        return tokens

    @property
    def texts(self) -> Rows:
        """The texts so far, in first-occurrence numbers."""
        return self._texts.made()

    def encoded(self, language: Language) -> Rows:
        """The texts in the numbers of a language. A text without any token is one unknown token."""
        texts = self.texts
        table = np.array(language.vocabulary.numbers(self.numbers), dtype=np.int32)
        values, lengths = table[texts.values], texts.lengths
        if lengths.all():
            return Rows(values, texts.ends)
        values = np.insert(values, texts.ends[:-1][lengths == 0], UNKNOWN)
        return Rows(values, np.concatenate([[0], np.maximum(lengths, 1).cumsum()]))


def first(tokens: Tokens, most: int | None) -> Tokens:
    """The first tokens of a text; None: all."""
    return Tokens(tokens.names[:most], tokens.spans[:most], tokens.words[:most])


def counted(encoders: Iterable[Encoder], rows: Bool[np.ndarray, " n"]) -> Counter[str]:
    """How often each token occurs in some of the texts, of encoders that share their numbers."""
    found: Counter[str] = Counter()
    for each in encoders:
        texts = each.texts
        values = texts.values[np.repeat(rows, texts.lengths)]
        counts = np.bincount(values, minlength=len(each.numbers)).tolist()
        found.update({name: count for name, count in zip(each.numbers, counts, strict=True) if count})
    return found


def linked(
    links: Int[np.ndarray, "l 2"], target: str, target_tokens: Tokens, source: str, source_tokens: Tokens
) -> Iterable[int]:
    """Links of tokens, one after another: each token of a word of the target with each of its words in the source.

    Args:
        links: Links of words: the number of a target's word and of a source's word, between white space.
        target: The text of the target.
        target_tokens: Its tokens.
        source: The text of the source.
        source_tokens: Its tokens.
    """
    of_target, of_source = tokens_of_words(target, target_tokens), tokens_of_words(source, source_tokens)
    found = {(t, s) for a, b in links.tolist() for t in of_target[a] for s in of_source[b]}
    return chain.from_iterable(sorted(found))


def tokens_of_words(text: str, tokens: Tokens) -> Sequence[Sequence[int]]:
    """The tokens of each word between white space. White space belongs to no word."""
    words = [each.span() for each in _WORD.finditer(text)]
    starts = [start for start, _ in words]
    found: list[list[int]] = [[] for _ in words]
    for number, ((start, _), of) in enumerate(zip(tokens.spans, tokens.words, strict=True)):
        word = bisect_right(starts, start) - 1
        if of != NO_WORD and word >= 0 and start < words[word][1]:
            found[word].append(number)
    return found
