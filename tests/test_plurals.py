"""Nouns with their counts."""

from __future__ import annotations

import pytest

from zoo.errors import count_noun, pluralize


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (2000, "row", "2,000 rows"),
        (2, "entry", "2 entries"),
        (2, "batch", "2 batches"),
    ],
)
def test_the_form_follows_the_count(count: int, noun: str, said: str) -> None:
    assert count_noun(count, noun) == said


def test_a_plural_of_its_own() -> None:
    assert count_noun(2, "link to a file", "links to a file") == "2 links to a file"
    assert count_noun(1, "link to a file", "links to a file") == "1 link to a file"
    assert pluralize("day") == "days"
