"""Exact match and F1 of answers, as SQuAD counts them (Rajpurkar et al. 2016, section 6.1)."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

from zoo.errors import DataError

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class SQuAD:
    """Shares, from 0 to 1, of answers that are a reference, and of words that an answer shares with its references.

    Case, punctuation, the articles a, an and the, and white space do not count. Of several references the best one
    counts.
    """

    size = 3

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Returns the number of answers that are a reference, the sum of their F1, and the number of all answers."""
        if len(hypotheses) != len(references) or not all(references):
            raise DataError("exact match and F1 compare each answer with one or more references")
        pairs = list(zip(hypotheses, references, strict=True))
        exact = sum(
            any(normalize_answer(answer) == normalize_answer(reference) for reference in texts)
            for answer, texts in pairs
        )
        shared = sum(max(word_f1(answer, reference) for reference in texts) for answer, texts in pairs)
        return [float(exact), float(shared), float(len(pairs))]

    def compute(self, sums: Sequence[float]) -> Mapping[str, float]:
        exact, shared, count = sums
        if not count:
            return {"exact_match": math.nan, "f1": math.nan}
        return {"exact_match": exact / count, "f1": shared / count}

    def signature(self) -> str:
        return "without case, punctuation and articles, as SQuAD 1.1"


def normalize_answer(answer: str) -> str:
    """Returns an answer in lower case, without punctuation and articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def word_f1(answer: str, reference: str) -> float:
    """Returns the harmonic mean of the shares of common words in both, which may be repeated; two empty texts agree."""
    words, reference_words = (normalize_answer(text).split() for text in (answer, reference))
    if not words or not reference_words:
        return float(words == reference_words)
    common = sum((Counter(words) & Counter(reference_words)).values())
    return 2 * common / (len(words) + len(reference_words)) if common else 0.0
