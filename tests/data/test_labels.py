"""How labels are used, and which of them look like slips."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from zoo.data.labels import count_label_uses, find_untrained, warn_of_similar, warn_of_unscored
from zoo.data.splits import NONE, TEST, TRAIN, VAL


def said(names: list[str], counts: list[int]) -> list[str]:
    labels = np.repeat(np.arange(len(names)), counts)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of_similar(Path("own.csv"), count_label_uses(names, labels, np.zeros(len(labels), dtype=np.int64)))
    return [str(each.message) for each in found]


@pytest.mark.parametrize("is_multi", [False, True])
def test_uses_of_labels(is_multi: bool) -> None:
    labels = np.array([1, 0, -1, 1, 3])
    splits = np.array([VAL, TRAIN, TRAIN, TRAIN, TEST])
    given = np.arange(4) == labels[:, None] if is_multi else labels
    uses = count_label_uses(["a", "b", "c", "d"], given, splits)
    assert [(use.name, use.count, use.where, use.first) for use in uses] == [
        ("a", 1, "train", 1),
        ("b", 2, "train and val", 0),
        ("d", 1, "test", 4),
    ]
    assert find_untrained(uses) == uses[2:]
    assert count_label_uses(["a"], np.array([0]), np.array([NONE]))[0].where == "no split"
    with pytest.warns(UserWarning, match=r"own\.csv: 'a', 'b', 'd' are not in every split\."):
        warn_of_unscored(Path("own.csv"), uses, ".")


def test_slips_are_rare_names_with_the_letters_of_another() -> None:
    (message,) = said(["praise", "prasie", "complaint"], [40, 1, 30])
    slip = "the label 'prasie' stands once, in train, and is spelled almost like 'praise'"
    assert message == f"own.csv: {slip}. Mend it if it is a slip."
    assert "'contradicton' stands 2 times" in said(["contradiction", "contradicton"], [200, 2])[0]


@pytest.mark.parametrize(
    ("names", "counts"),
    [
        (["praise", "raised"], [40, 1]),  # two letters of six
        (["cat", "car"], [40, 1]),
        (["class 12", "class 13"], [40, 1]),
        (["spring", "string"], [40, 3]),
    ],
)
def test_other_names_are_no_slips(names: list[str], counts: list[int]) -> None:
    assert not said(names, counts)


def test_names_that_differ_in_case_only() -> None:
    assert said(["Bad", "bad", "good"], [1, 9, 9]) == [
        "own.csv: 'Bad', 'bad' are classes of their own, and differ in the case of letters only."
    ]
