"""BLEU and chrF, computed by sacrebleu (Post 2018, 'A call for clarity in reporting BLEU scores')."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from zoo.errors import DataError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

_ORDER = 4


class BLEU:
    """BLEU (Papineni et al. 2002) with n-grams of up to four words, from 0 to 100, and BLEU-1 to BLEU-3.

    Args:
        lowercase: If True, case is ignored.
        tokenize: Tokenizer of sacrebleu; "none" if spaces separate the tokens of the texts already.
    """

    size = 2 + 2 * _ORDER

    def __init__(
        self, *, lowercase: bool = False, tokenize: Literal["13a", "intl", "char", "zh", "none"] = "13a"
    ) -> None:
        from sacrebleu.metrics import bleu

        self._metric = bleu.BLEU(lowercase=lowercase, tokenize=tokenize, force=True)

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Counts words of hypotheses and of references, then matching n-grams and n-grams of hypotheses, n = 1 to 4."""
        return _sum_statistics(self._metric, hypotheses, references, self.size)

    def compute(self, sums: Sequence[float]) -> Mapping[str, float]:
        counts = [int(value) for value in sums]
        matches, totals = counts[2 : 2 + _ORDER], counts[2 + _ORDER :]
        scores = {}
        for order in range(_ORDER, 0, -1):
            result = self._metric.compute_bleu(
                matches[:order],
                totals[:order],
                counts[0],
                counts[1],
                smooth_method=self._metric.smooth_method,
                smooth_value=self._metric.smooth_value,
                max_ngram_order=order,
            )
            name = "bleu" if order == _ORDER else f"bleu_{order}"
            scores[name] = float(result.score) if any(counts) else math.nan
        return scores

    def signature(self) -> str:
        return _get_signature(self._metric)


class CHRF:
    """chrF (Popović 2015): the F-score of n-grams of up to six characters, from 0 to 100.

    Args:
        word_order: Length of the longest n-grams of words that are included; 2 gives chrF++ (Popović 2017).
        lowercase: If True, case is ignored.
    """

    def __init__(self, *, word_order: int = 0, lowercase: bool = False) -> None:
        from sacrebleu.metrics import chrf

        self._metric = chrf.CHRF(word_order=word_order, lowercase=lowercase)
        self.size = 3 * (self._metric.char_order + word_order)

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Counts n-grams of hypotheses, n-grams of references and matching n-grams, for each order."""
        return _sum_statistics(self._metric, hypotheses, references, self.size)

    def compute(self, sums: Sequence[float]) -> Mapping[str, float]:
        if not any(sums):
            return {"chrf": math.nan}
        # sacrebleu has no public method that takes sums; it adds up sentences, so the sums are passed as one sentence
        return {"chrf": float(self._metric._aggregate_and_compute([[int(value) for value in sums]]).score)}

    def signature(self) -> str:
        return _get_signature(self._metric)


def _sum_statistics(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], size: int
) -> list[float]:
    if len(hypotheses) != len(references) or not all(references):
        raise DataError(f"{len(hypotheses)} texts for {len(references)} lists of references, each of one or more")
    if not hypotheses:
        return [0.0] * size
    max_references = max(map(len, references))
    streams: list[list[Any]] = [
        [texts[number] if number < len(texts) else None for texts in references] for number in range(max_references)
    ]
    statistics = metric._extract_corpus_statistics(hypotheses, streams)
    return [float(sum(column)) for column in zip(*statistics, strict=True)]


def _get_signature(metric: Metric) -> str:
    """Returns sacrebleu's signature without the number of references, which is not known here."""
    metric.num_refs = 1
    parts = str(metric.get_signature()).split("|")
    return "|".join(part for part in parts if not part.startswith("nrefs:"))
