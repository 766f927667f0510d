"""ROUGE of summaries (Lin 2004, 'ROUGE: a package for automatic evaluation of summaries') and of captions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from zoo.errors import DataError

_WORD = re.compile(r"[^\W_]+")
_BETA = 1.2
_KINDS = ("rouge_1", "rouge_2", "rouge_l")


class ROUGE:
    """ROUGE-1, ROUGE-2 and ROUGE-L as F1, from 0 to 1, averaged over texts.

    If a text has several references, each of the three takes the best one. Words are lower-case runs of letters and
    digits, without stemming. On English texts the scores equal those of the package rouge-score, which drops letters
    other than a-z.
    """

    size = 1 + len(_KINDS)

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Returns the number of texts and the three sums of F1."""
        _check(hypotheses, references)
        totals = [0.0] * len(_KINDS)
        for hypothesis, texts in zip(hypotheses, references, strict=True):
            words = _split_words(hypothesis)
            scores = [_compute_scores(words, _split_words(reference)) for reference in texts]
            totals = [total + max(kind) for total, kind in zip(totals, zip(*scores, strict=True), strict=True)]
        return [float(len(hypotheses)), *totals]

    def compute(self, sums: Sequence[float]) -> Mapping[str, float]:
        count, *totals = sums
        return {kind: total / count if count else math.nan for kind, total in zip(_KINDS, totals, strict=True)}

    def signature(self) -> str:
        return "rouge: F1, small letters, letters and digits, no stemming, the nearest reference, mean over texts"


class CaptionROUGE:
    """ROUGE-L as captions are scored with it (Chen et al. 2015, 'Microsoft COCO captions'), from 0 to 1.

    Precision is that of the reference with the highest one, recall likewise, and recall counts more (beta = 1.2). Words
    stand between spaces, in the case in which they are written.
    """

    size = 2

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Returns the number of texts and the sum of their scores."""
        _check(hypotheses, references)
        pairs = zip(hypotheses, references, strict=True)
        return [
            float(len(hypotheses)),
            sum(_compute_best(text.split(), [reference.split() for reference in group]) for text, group in pairs),
        ]

    def compute(self, sums: Sequence[float]) -> Mapping[str, float]:
        count, total = sums
        return {"rouge_l": total / count if count else math.nan}

    def signature(self) -> str:
        return f"rouge_l: F with beta {_BETA}, the best precision and recall over references, words between spaces"


def _check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if len(hypotheses) != len(references) or not all(references):
        raise DataError(f"{len(hypotheses)} texts for {len(references)} lists of references, each of one or more")


def _compute_best(words: list[str], references: list[list[str]]) -> float:
    """Computes the F-score of the best precision and the best recall; 0 if no word is shared."""
    from rapidfuzz.distance import LCSseq

    common = [LCSseq.similarity(words, reference) for reference in references]
    if not any(common):
        return 0.0
    precision = max(common) / len(words)
    recall = max(shared / len(reference) for shared, reference in zip(common, references, strict=True) if reference)
    return (1 + _BETA**2) * precision * recall / (recall + _BETA**2 * precision)


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _compute_scores(hypothesis: list[str], reference: list[str]) -> tuple[float, float, float]:
    from rapidfuzz.distance import LCSseq

    pairs = [list(pairwise(words)) for words in (hypothesis, reference)]
    return (
        _compute_f1(_count_common(hypothesis, reference), len(hypothesis), len(reference)),
        _compute_f1(_count_common(*pairs), len(pairs[0]), len(pairs[1])),
        _compute_f1(LCSseq.similarity(hypothesis, reference), len(hypothesis), len(reference)),
    )


def _count_common(hypothesis: Sequence[object], reference: Sequence[object]) -> int:
    return (Counter(hypothesis) & Counter(reference)).total()


def _compute_f1(common: int, hypothesis: int, reference: int) -> float:
    return 2 * common / (hypothesis + reference) if common else 0.0
