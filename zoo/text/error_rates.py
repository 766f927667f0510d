"""Error rates of words and characters, as jiwer aligns them: substitutions, deletions and insertions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar

from zoo.errors import DataError

if TYPE_CHECKING:
    from jiwer import CharacterOutput, WordOutput

_ERRORS = ("substitutions", "deletions", "insertions")


class _ErrorRate:
    """By the number of what was expected: 0 for what is right, and above 1 where much is inserted."""

    size = 4
    name: ClassVar[str]
    compared: ClassVar[str]

    def sums(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """How many are right, substituted, deleted and inserted."""
        if len(hypotheses) != len(references) or any(len(each) != 1 for each in references):
            raise DataError("an error rate compares each text with one reference")
        if not hypotheses:
            return [0.0] * self.size
        found = self._aligned([each[0] for each in references], list(hypotheses))
        return [float(found.hits), *(float(getattr(found, name)) for name in _ERRORS)]

    def figures(self, sums: Sequence[float]) -> Mapping[str, float]:
        hits, *errors = sums
        expected = hits + errors[0] + errors[1]
        rates = [each / expected if expected else math.nan for each in (sum(errors), *errors)]
        return dict(zip((self.name, *(f"{self.name}_{each}" for each in _ERRORS)), rates, strict=True))

    def signature(self) -> str:
        return f"{self.name}: {self.compared}, capitals and punctuation count; jiwer {version('jiwer')}"

    def _aligned(self, references: list[str], hypotheses: list[str]) -> WordOutput | CharacterOutput:
        raise NotImplementedError


class WER(_ErrorRate):
    """Word error rate, and its three parts."""

    name, compared = "wer", "words between white space"

    def _aligned(self, references: list[str], hypotheses: list[str]) -> WordOutput:
        from jiwer import process_words

        return process_words(references, hypotheses)


class CER(_ErrorRate):
    """Character error rate, and its three parts."""

    name, compared = "cer", "characters, spaces too"

    def _aligned(self, references: list[str], hypotheses: list[str]) -> CharacterOutput:
        from jiwer import process_characters

        return process_characters(references, hypotheses)
