"""Exact match and F1 of answers, against torchmetrics and by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.text import squad

from zoo.errors import DataError
from zoo.text import SQuAD
from zoo.text.metrics.squad import normalize_answer, word_f1

WORDS = st.sampled_from(["the", "an", "The", "old", "mill", "Mill!", "old-mill", "a", "7", "two", "", "café", "theme"])
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(TEXTS, st.lists(TEXTS, min_size=1, max_size=3)), min_size=1, max_size=5))
def test_the_same_as_torchmetrics(pairs: list[tuple[str, list[str]]]) -> None:
    answers = [answer for answer, _ in pairs]
    found = SQuAD().compute(SQuAD().statistics(answers, [known for _, known in pairs]))
    expected = squad(
        [{"prediction_text": answer, "id": str(number)} for number, answer in enumerate(answers)],
        [
            {"answers": {"answer_start": [0] * len(known), "text": known}, "id": str(number)}
            for number, (_, known) in enumerate(pairs)
        ],
    )
    assert found["exact_match"] * 100 == pytest.approx(float(expected["exact_match"]))
    assert found["f1"] * 100 == pytest.approx(float(expected["f1"]), rel=1e-5)


def test_by_hand() -> None:
    assert normalize_answer("The  old mill, a ruin.") == "old mill ruin"
    assert normalize_answer("theatre") == "theatre"
    assert word_f1("the old mill", "old water mill") == pytest.approx(0.8)
    assert word_f1("mill mill", "mill") == pytest.approx(2 / 3)
    assert (word_f1("the", "a"), word_f1("the", "mill")) == (1.0, 0.0)
    score = SQuAD()
    sums = score.statistics(["Old mill.", "a barn"], [["mill", "the old mill"], ["garden"]])
    assert sums == [1.0, 1.0, 2.0]
    assert score.compute(sums) == {"exact_match": 0.5, "f1": 0.5}


def test_nothing_and_no_reference() -> None:
    score = SQuAD()
    assert score.statistics([], []) == [0.0] * score.size
    assert all(math.isnan(each) for each in score.compute([0.0] * 3).values())
    for answers, references in ((["x"], [[]]), (["x"], [])):
        with pytest.raises(DataError, match="one or more references"):
            score.statistics(answers, references)
