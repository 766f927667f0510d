"""Error rates of words and characters, as jiwer aligns them: substitutions, deletions and insertions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from zoo.errors import DataError

if TYPE_CHECKING:
    from jiwer import CharacterOutput, WordOutput

_SUMS = ("substitutions", "deletions", "insertions")


class WER:
    """Word error rate: 0 for what is right, and above 1 where much is inserted; and its three parts."""

    size = 4

    def sums(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Words that are right, substituted, deleted and inserted."""
        from jiwer import process_words

        expected = _only(hypotheses, references)
        return _counts(process_words(expected, list(hypotheses))) if expected else [0.0] * self.size

    def figures(self, sums: Sequence[float]) -> Mapping[str, float]:
        return _rates("wer", sums)

    def signature(self) -> str:
        return f"wer: words between white space, capitals and punctuation count; {_version()}"


class CER:
    """Character error rate, spaces among them; and its three parts."""

    size = 4

    def sums(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Characters that are right, substituted, deleted and inserted."""
        from jiwer import process_characters

        expected = _only(hypotheses, references)
        return _counts(process_characters(expected, list(hypotheses))) if expected else [0.0] * self.size

    def figures(self, sums: Sequence[float]) -> Mapping[str, float]:
        return _rates("cer", sums)

    def signature(self) -> str:
        return f"cer: characters, spaces too, capitals and punctuation count; {_version()}"


def _only(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[str]:
    if len(hypotheses) != len(references) or any(len(each) != 1 for each in references):
        raise DataError("an error rate compares each text with one reference")
    return [each[0] for each in references]


def _counts(found: WordOutput | CharacterOutput) -> list[float]:
    return [float(found.hits), *(float(getattr(found, name)) for name in _SUMS)]


def _rates(name: str, sums: Sequence[float]) -> Mapping[str, float]:
    hits, *errors = sums
    expected = hits + errors[0] + errors[1]
    rate = [each / expected if expected else math.nan for each in (sum(errors), *errors)]
    return dict(zip((name, *(f"{name}_{each}" for each in _SUMS)), rate, strict=True))


def _version() -> str:
    from importlib.metadata import version

    return f"jiwer {version('jiwer')}"
