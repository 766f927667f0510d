"""Vocabularies: which tokens have a number, in which order, and what becomes of the others."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.errors import CheckpointError, ConfigError, DataError
from zoo.text import Vocabulary
from zoo.text.vocabulary import Policy

COUNTS = {"b": 3, "a": 3, "c": 1, "d": 7}


def test_the_frequent_first_and_then_by_spelling() -> None:
    made = Vocabulary.from_counts(COUNTS)
    assert made.tokens == ("<pad>", "<unk>", "d", "a", "b", "c")
    assert (made.pad, made.unknown, len(made)) == (0, 1, 6)
    assert made.encode(["d", "x", "a"]) == [2, 1, 3]
    assert made.decode([2, 0, 1, 3]) == ["d", "<unk>", "a"]
    assert "d" in made
    assert "x" not in made


def test_rare_tokens_and_those_beyond_the_size_are_unknown() -> None:
    assert Vocabulary.from_counts(COUNTS, min_count=2).tokens == ("<pad>", "<unk>", "d", "a", "b")
    assert Vocabulary.from_counts(COUNTS, max_size=4).tokens == ("<pad>", "<unk>", "d", "a")
    made = Vocabulary.from_counts(COUNTS, specials=("pad", "begin", "end", "unknown"), max_size=5)
    assert made.tokens == ("<pad>", "<s>", "</s>", "<unk>", "d")
    assert (made.begin, made.end, made.unknown) == (1, 2, 3)
    assert made.decode([1, 4, 3, 2]) == ["d", "<unk>"]


def test_no_text_spells_a_special() -> None:
    made = Vocabulary.from_counts(Counter(["<pad>", "</s>", "a"]))
    assert made.tokens == ("<pad>", "<unk>", "a")
    assert made.encode(["<pad>", "<unk>", "</s>", "a"]) == [1, 1, 1, 2]
    assert "<pad>" not in made


def test_without_the_unknown_it_is_an_error() -> None:
    made = Vocabulary("abc", specials=("pad",))
    assert made.encode("cab") == [3, 1, 2]
    with pytest.raises(DataError, match="'x', 'y' are not in the vocabulary of 4 tokens"):
        made.encode("abyx")
    with pytest.raises(AttributeError, match="made without <unk>"):
        _ = made.unknown


@given(
    counts=st.dictionaries(st.text(max_size=3), st.integers(1, 4)),
    specials=st.permutations(["pad", "unknown", "begin", "end"]).flatmap(
        lambda names: st.integers(0, 4).map(lambda count: names[:count])
    ),
)
def test_a_restored_one_is_the_same(counts: dict[str, int], specials: Any) -> None:
    counts = {token: count for token, count in counts.items() if token not in ("", "<pad>", "<unk>", "<s>", "</s>")}
    made = Vocabulary.from_counts(counts, specials=specials)
    state = made.state()
    assert Vocabulary.from_counts(dict(reversed(counts.items())), specials=specials).state() == state
    again = Vocabulary.from_state(state)
    assert again.state() == state
    assert all(type(name) is str for name in state)
    known = list(counts)
    assert again.encode(known) == made.encode(known)
    assert again.decode(again.encode(known)) == known


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, "the vocabulary is None, not a list"),
        ({"a": 1}, "the vocabulary is a dict"),
        (["a", 3], r"the vocabulary\.1 is 3"),
        (["a", ""], "is ''"),
        (["a", "b" * 2000], "not a text of at most 1,024 characters"),
        (["<pad>", "a", "a"], "has a token twice"),
        (["<pad>", "<pad>", "a"], "has a token twice"),
        (["<pad>", "a", "<unk>"], "tokens of no text among the others"),
    ],
)
def test_a_strangers_state(state: Any, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        Vocabulary.from_state(state)


def test_what_makes_no_sense() -> None:
    with pytest.raises(ConfigError, match="specials are pad, unknown, begin, end, each at most once, not pad, pad"):
        Vocabulary("a", specials=("pad", "pad"))
    with pytest.raises(ConfigError, match="min_count=0"):
        Vocabulary.from_counts(COUNTS, min_count=0)
    with pytest.raises(ConfigError, match="max_size=2"):
        Vocabulary.from_counts(COUNTS, max_size=2)
    with pytest.raises(DataError, match="'a' is named more than once"):
        Vocabulary("aba")


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ("unite", ("<pad>", "<unk>", "x", "a", "y", "d", "b")),
        ("keep", ("<pad>", "<unk>", "x", "a", "y")),
        ("new", ("<pad>", "<unk>", "d", "a", "b")),
    ],
)
def test_a_vocabulary_that_starts_from_another(policy: Policy, names: tuple[str, ...]) -> None:
    origin = ("<unk>", "x", "a", "y")
    assert Vocabulary.from_counts(COUNTS, min_count=2, origin=origin, policy=policy).tokens == names
    assert Vocabulary.from_counts(COUNTS, min_count=2, policy=policy).tokens == ("<pad>", "<unk>", "d", "a", "b")


def test_the_largest_size_of_a_vocabulary_takes_nothing_from_the_one_it_starts_from() -> None:
    assert Vocabulary.from_counts(COUNTS, max_size=6, origin=("x", "a", "y")).tokens[2:] == ("x", "a", "y", "d")
    assert Vocabulary.from_counts(COUNTS, max_size=3, origin=("x", "a", "y")).tokens[2:] == ("x", "a", "y")
