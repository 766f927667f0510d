"""From links of words to links of tokens."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from jaxtyping import Int

from zoo.text import Tokens
from zoo.text.tokens import NO_WORD

_WORD = re.compile(r"\S+")


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
