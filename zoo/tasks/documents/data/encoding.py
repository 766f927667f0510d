"""Splits texts into sentences of tokens, and looks tokens up in the vocabulary."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool

from zoo.text import Tokenizer, Vocabulary, sentence_spans, tokenizer_from_state
from zoo.text.html import remove_markup
from zoo.text.tokens import NO_WORD, Span


@dataclass(frozen=True)
class Sentence:
    """The tokens of a sentence.

    Args:
        names: Tokens as in the vocabulary.
        text: The whole text that contains the sentence.
        spans: Span of each token in the text.
        gold: Flag of each token, True if it determines the label. Default: unknown.
    """

    names: Sequence[str]
    text: str
    spans: Sequence[Span]
    gold: Sequence[bool] | None = None

    def spelled_tokens(self) -> list[str]:
        """Returns the tokens as they stand in the text, with a space in front where there is white space."""
        text = self.text
        return [f" {text[a:b]}" if text[a - 1 : a].isspace() else text[a:b] for a, b in self.spans]


@dataclass(frozen=True)
class DocumentTokenizer:
    """Splits texts into sentences of tokens.

    Args:
        tokeniser: Splits texts into tokens.
        language: Language code, which decides where sentences end.
        max_sentences: Maximum number of sentences of a text; the rest is cut. Default: no limit.
        max_words: Maximum number of tokens of a text; the rest is cut. Default: no limit.
    """

    tokeniser: Tokenizer
    language: str = "en"
    max_sentences: int | None = None
    max_words: int | None = None

    def __call__(
        self, text: str | Sequence[str], gold: Bool[np.ndarray, " _"] | None = None
    ) -> tuple[list[Sentence], bool]:
        """Returns the sentences of a text, and True if the text was cut.

        Args:
            text: A text, which may have HTML, or its sentences.
            gold: Mask of the words (separated by white space) that determine the label, if sentences are given.
        """
        found = self._split_text(text) if isinstance(text, str) else self._split_sentences(text, gold)
        return self._cut([sentence for sentence in found if sentence.names])

    def _split_text(self, text: str) -> Iterator[Sentence]:
        plain = remove_markup(text).text
        tokens = self.tokeniser.encode(plain)
        starts = [start for start, _ in tokens.spans]
        for start, end in sentence_spans(plain, self.language):
            first, last = bisect_left(starts, start), bisect_left(starts, end)
            yield Sentence(tokens.names[first:last], plain, tokens.spans[first:last])

    def _split_sentences(self, sentences: Sequence[str], gold: Bool[np.ndarray, " _"] | None) -> Iterator[Sentence]:
        words = 0
        for sentence in sentences:
            tokens = self.tokeniser.encode(sentence)
            marks = None if gold is None else [word != NO_WORD and bool(gold[words + word]) for word in tokens.words]
            yield Sentence(tokens.names, sentence, tokens.spans, marks)
            words += len(sentence.split())

    def _cut(self, sentences: list[Sentence]) -> tuple[list[Sentence], bool]:
        kept = sentences[: self.max_sentences]
        if self.max_words is None:
            return kept, len(kept) < len(sentences)
        left, found = self.max_words, []
        for each in kept:
            if len(each.names) > left:
                gold = None if each.gold is None else each.gold[:left]
                each = Sentence(each.names[:left], each.text, each.spans[:left], gold)
            found.append(each)
            left -= len(found[-1].names)
            if not left:
                break
        return found, sum(len(each.names) for each in found) < sum(len(each.names) for each in sentences)

    def state(self) -> dict[str, Any]:
        """Returns the options and the tokeniser's state in plain types, for the checkpoint."""
        return {
            "tokeniser": self.tokeniser.state(),
            "language": self.language,
            "max_sentences": self.max_sentences,
            "max_words": self.max_words,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> DocumentTokenizer:
        return cls(
            tokenizer_from_state(state["tokeniser"]), state["language"], state["max_sentences"], state["max_words"]
        )


def count_tokens(sentences: Iterable[Sentence]) -> Counter[str]:
    """Counts the occurrences of each token."""
    found: Counter[str] = Counter()
    for each in sentences:
        found.update(each.names)
    return found


def encode_sentences(vocabulary: Vocabulary, sentences: Sequence[Sentence]) -> list[list[int]]:
    """Returns the vocabulary indices of each sentence; a text without tokens becomes one unknown token."""
    return [vocabulary.encode(each.names) for each in sentences] or [[vocabulary.unknown]]
