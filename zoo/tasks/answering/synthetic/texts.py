"""What generated questions about texts have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from zoo.data.splits import TEST, TRAIN, VAL

Link = tuple[int, int]
"""A word of the question and a word of the passage, each by its place."""


@dataclass(frozen=True, eq=False)
class SyntheticQA:
    """Generated questions about passages, or hypotheses and their premises; words stand between spaces.

    Args:
        passages: The passages, or premises.
        questions: The questions, or hypotheses.
        answers: The answers, or labels.
        spans: For answers that stand in the passage, the places of their first and last word; none for labels.
        links: The words of the question, and those of the passage, that decide the answer together.
        splits: `TRAIN`, `VAL` or `TEST` of `zoo.data.splits`.
    """

    passages: list[str]
    questions: list[str]
    answers: list[str]
    spans: list[tuple[int, int]]
    links: list[list[Link]]
    splits: Int[np.ndarray, " n"]


def split_into(training: int, held_out: int) -> Int[np.ndarray, " n"]:
    """Returns the splits of examples in their order: those for training, for validation and for the test."""
    return np.repeat([TRAIN, VAL, TEST], [training, held_out, held_out])
