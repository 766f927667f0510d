"""From links of words to links of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
from jaxtyping import Int

from zoo.text import Tokens
from zoo.text.tokens import tokens_of_words


def link_tokens(
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
