"""CIDEr-D (Vedantam et al. 2015, 'CIDEr: consensus-based image description evaluation')."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from zoo.errors import DataError

_ORDER = 4
_SIGMA = 6.0
_SCALE = 10.0

NGram = tuple[str, ...]


class Frequencies:
    """In how many documents of a corpus an n-gram of up to four words stands.

    A document is the references of one example. An n-gram that stands in one document weighs as much as one that stands
    in none, so that only those in several are kept.

    Args:
        documents: Number of documents.
        counts: N-gram -> number of documents that it stands in, for n-grams in two or more.
    """

    def __init__(self, documents: int, counts: Mapping[NGram, int]) -> None:
        self.documents = documents
        self.counts = counts

    @classmethod
    def from_corpus(cls, corpus: Iterable[Sequence[str]]) -> Frequencies:
        """Counts the n-grams of a corpus, which has the references of each example."""
        documents, counts = 0, Counter[NGram]()
        for references in corpus:
            documents += 1
            counts.update(set(chain.from_iterable(_count_ngrams(text.split()) for text in references)))
        return cls(documents, {ngram: count for ngram, count in counts.items() if count > 1})

    def weight(self, ngram: NGram) -> float:
        """Returns the inverse document frequency of an n-gram (eq. 1)."""
        return self._all - math.log(self.counts.get(ngram, 1))

    @cached_property
    def _all(self) -> float:
        return math.log(self.documents) if self.documents else 0.0


class CIDEr:
    """CIDEr-D, from 0 to 10: n-grams of up to four words that a text shares with its references, weighted by rarity.

    Words stand between spaces, in the case in which they are written. Published figures come from texts in lower case
    without punctuation, and are often multiplied by 100.

    Args:
        frequencies: Document frequencies of the references of the whole corpus. A corpus of one document has no rare
            words, and every text then scores zero.
    """

    size = 2

    def __init__(self, frequencies: Frequencies) -> None:
        self.frequencies = frequencies

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Returns the number of texts and the sum of their scores."""
        return [float(len(hypotheses)), sum(self.each(hypotheses, references))]

    def each(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Returns the score of each text."""
        if len(hypotheses) != len(references) or not all(references):
            raise DataError(f"{len(hypotheses)} texts for {len(references)} lists of references, each of one or more")
        scores = []
        for hypothesis, texts in zip(hypotheses, references, strict=True):
            text = self._weigh_ngrams(hypothesis)
            scores.append(
                sum(_compute_similarity(text, self._weigh_ngrams(reference)) for reference in texts) / len(texts)
            )
        return scores

    @staticmethod
    def compute(sums: Sequence[float]) -> Mapping[str, float]:
        count, total = sums
        return {"cider": total / count if count else math.nan}

    @staticmethod
    def signature() -> str:
        return "cider: CIDEr-D, n to 4, sigma 6, words between spaces, document frequencies of the split's references"

    def _weigh_ngrams(self, text: str) -> _WeightedNGrams:
        words = text.split()
        parts: list[dict[NGram, float]] = [{} for _ in range(_ORDER)]
        for ngram, count in _count_ngrams(words).items():
            parts[len(ngram) - 1][ngram] = count * self.frequencies.weight(ngram)
        norms = [math.sqrt(sum(weight**2 for weight in part.values())) for part in parts]
        return _WeightedNGrams(len(words), parts, norms)


@dataclass(frozen=True)
class _WeightedNGrams:
    """A text as n-grams with their weights (TF-IDF), and the norms of these vectors, for n = 1 to 4."""

    length: int
    parts: Sequence[Mapping[NGram, float]]
    norms: Sequence[float]


def _compute_similarity(text: _WeightedNGrams, reference: _WeightedNGrams) -> float:
    """Computes ten times the mean of the clipped cosines over n, with the penalty on lengths (section 6, CIDEr-D)."""
    total = 0.0
    for text_weights, reference_weights, norm, reference_norm in zip(
        text.parts, reference.parts, text.norms, reference.norms, strict=True
    ):
        if norm and reference_norm:
            shared = sum(
                min(weight, reference_weights[ngram]) * reference_weights[ngram]
                for ngram, weight in text_weights.items()
                if ngram in reference_weights
            )
            total += shared / (norm * reference_norm)
    penalty = math.exp(-((text.length - reference.length) ** 2) / (2 * _SIGMA**2))
    return _SCALE * total / _ORDER * penalty


def _count_ngrams(words: Sequence[str]) -> Counter[NGram]:
    """Counts n-grams of one to four words."""
    return Counter(
        tuple(words[start : start + order]) for order in range(1, _ORDER + 1) for start in range(len(words) - order + 1)
    )
