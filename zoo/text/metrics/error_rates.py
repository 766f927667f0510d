"""Word and character error rates; jiwer aligns the texts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar

from zoo.errors import DataError

if TYPE_CHECKING:
    from jiwer import CharacterOutput, WordOutput

_ERRORS = ("substitutions", "deletions", "insertions")


class _ErrorRate(ABC):
    """Errors divided by the size of the references: 0 is perfect, and many insertions give more than 1."""

    size = 4
    name: ClassVar[str]
    unit: ClassVar[str]

    def statistics(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Returns the numbers of correct, substituted, deleted and inserted units."""
        if len(hypotheses) != len(references) or any(len(texts) != 1 for texts in references):
            raise DataError("an error rate compares each text with one reference")
        if not hypotheses:
            return [0.0] * self.size
        alignment = self._align([texts[0] for texts in references], list(hypotheses))
        return [float(alignment.hits), *(float(getattr(alignment, name)) for name in _ERRORS)]

    def compute(self, sums: Sequence[float]) -> Mapping[str, float]:
        hits, *errors = sums
        expected = hits + errors[0] + errors[1]
        rates = [count / expected if expected else math.nan for count in (sum(errors), *errors)]
        return dict(zip((self.name, *(f"{self.name}_{kind}" for kind in _ERRORS)), rates, strict=True))

    def signature(self) -> str:
        return f"{self.name}: {self.unit}, capitals and punctuation count; jiwer {version('jiwer')}"

    @abstractmethod
    def _align(self, references: list[str], hypotheses: list[str]) -> WordOutput | CharacterOutput:
        """Aligns the units of each pair of texts."""


class WER(_ErrorRate):
    """The word error rate, and its shares of substitutions, deletions and insertions."""

    name, unit = "wer", "words between white space"

    def _align(self, references: list[str], hypotheses: list[str]) -> WordOutput:
        from jiwer import process_words

        return process_words(references, hypotheses)


class CER(_ErrorRate):
    """The character error rate, and its shares of substitutions, deletions and insertions."""

    name, unit = "cer", "characters, spaces too"

    def _align(self, references: list[str], hypotheses: list[str]) -> CharacterOutput:
        from jiwer import process_characters

        return process_characters(references, hypotheses)
