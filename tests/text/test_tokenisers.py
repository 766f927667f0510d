"""Tokenisers: what they part a text into, where each token stands, and that the text comes back."""

from __future__ import annotations

import copy
import gzip
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from zoo.errors import CheckpointError, ConfigError, DataError
from zoo.text import Characters, Subwords, Tokenizer, Tokens, Words, tokenizer_from_state
from zoo.text.tokens import NO_WORD
from zoo.text.words import WORD

CORPUS = [
    "Ein Hund läuft über die Straße, und ein Mann ruft: „Komm!“",
    "A dog runs across the street; the man doesn't call.",
    "Der Hund läuft. Der Mann läuft. Die Straße ist lang.",
    "the dog, the man, the street and the dogs of the men",
] * 3
SUBWORDS = Subwords(size=330).fit(CORPUS)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(
    st.sampled_from("dog läuft  Straße\u0301\n\t'’.,()▁Ġ\U0001f600\0"), max_size=30
)


def kinds() -> list[Tokenizer]:
    return [Words(), Words(lower=True), Characters(), Characters(lower=True), SUBWORDS]


@given(text=TEXT, which=st.integers(0, 4))
def test_spans_and_words_of_any_text(text: str, which: int) -> None:
    tokens = kinds()[which].encode(text)
    assert len(tokens) == len(tokens.names) == len(tokens.spans) == len(tokens.words)
    assert all(0 <= start <= end <= len(text) for start, end in tokens.spans)
    assert tokens.spans == sorted(tokens.spans)
    numbers = [word for word in tokens.words if word != NO_WORD]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(len(set(numbers))))
    words = tokens.word_spans()
    assert len(words) == len(set(numbers))
    assert "".join(text[start:end] for start, end in words) == regex.sub(r"\s", "", text)
    assert all(
        start < end <= after for (start, end), (after, _) in zip(words, [*words, (len(text), 0)][1:], strict=True)
    )


@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn", "Cf"])))  # of which libraries know different ones
def test_all_kinds_agree_on_words(text: str) -> None:
    expected = Words().encode(text).spans
    assert Characters().encode(text).word_spans() == expected
    assert SUBWORDS.encode(text).word_spans() == expected


@given(text=st.text(st.characters(max_codepoint=127)))
def test_ascii_text_has_the_words_of_the_pattern(text: str) -> None:
    assert Words().encode(text).spans == [each.span() for each in regex.finditer(WORD, text)]


@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn", "Cf"])), which=st.integers(0, 4))
def test_tokens_without_their_text_belong_to_the_same_words(text: str, which: int) -> None:
    tokens = kinds()[which].encode(text)
    assert kinds()[which].words(tokens.names) == tokens.words


def test_words_of_tokens_that_no_text_has() -> None:
    """Half of a character is a word of its own; the beginning of a word and an unknown token are in one."""
    assert SUBWORDS.words(["Ġd", "o", "g", "Ã", "Ġ", "Ġ", "."]) == [0, 0, 0, 1, NO_WORD, 2, 2]
    assert SUBWORDS.words(["Ġl", "Ã", "¤", "u"]) == [0, 0, 0, 0]
    assert Words().words(["a", "<unk>"]) == [0, 1]
    assert Characters().words(["a", " ", "b", "c", "."]) == [0, NO_WORD, 1, 1, 2]


@given(text=TEXT)
def test_characters_and_subwords_lose_nothing(text: str) -> None:
    for each in (Characters(), SUBWORDS):
        assert each.decode(each.encode(text).names) == text
    assert set(SUBWORDS.encode(text).names) <= set(SUBWORDS.pieces)


@given(text=TEXT)
def test_words_are_the_same_when_read_again(text: str) -> None:
    names = Words().encode(text).names
    assert Words().encode(Words().decode(names)).names == names


@pytest.mark.parametrize("text", ["The dog (a small one) doesn't run.", "Zwei Hunde, die laufen!"])
def test_words_of_ordinary_text_come_back(text: str) -> None:
    assert Words().decode(Words().encode(text).names) == text


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Don't stop, O’Neill!", ["Don't", "stop", ",", "O’Neill", "!"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("cafe\u0301 (2,5 €)", ["cafe\u0301", "(", "2", ",", "5", "€", ")"]),
        ("a_b x-y 'z'", ["a_b", "x", "-", "y", "'", "z", "'"]),
        (" \n", []),
    ],
)
def test_what_a_word_is(text: str, names: list[str]) -> None:
    assert Words().encode(text).names == names


def test_small_letters_keep_the_spans() -> None:
    text = "İSTANBUL Straße"
    assert Words(lower=True).encode(text).names == [text[:8].lower(), "straße"]
    assert Words(lower=True).encode(text).spans == [(0, 8), (9, 15)]
    assert len(Characters(lower=True).encode(text)) == len(text)
    small = Subwords(size=300, lower=True).fit(CORPUS)
    assert small.decode(small.encode(text).names) == text.lower()
    assert small.encode(text).word_spans() == [(0, 8), (9, 15)]


def test_frequent_words_are_one_piece_wherever_they_stand() -> None:
    assert len(SUBWORDS.pieces) == 330
    first, later = SUBWORDS.encode("the man"), SUBWORDS.encode("man, the man")
    assert first == Tokens(["Ġthe", "Ġman"], [(0, 3), (4, 7)], [0, 1])
    assert later.names == ["Ġman", ",", "Ġthe", "Ġman"]
    rare = SUBWORDS.encode("thermal 😀")
    assert rare.words == [0] * (len(rare) - rare.words.count(1)) + [1] * rare.words.count(1)
    assert rare.word_spans() == [(0, 7), (8, 9)]


def test_training_is_the_same_in_any_order_and_process() -> None:
    state = SUBWORDS.state()
    shuffled = random.Random(0).sample(CORPUS, len(CORPUS))
    assert Subwords(size=330).fit(iter(shuffled)).state() == state
    code = (
        "import json, sys; from zoo.text import Subwords\n"
        "print(json.dumps(Subwords(size=330).fit(json.loads(sys.argv[1])).state()))"
    )
    import json

    root = str(Path(__file__).parents[2])
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(CORPUS)],
            capture_output=True,
            text=True,
            env=environment,
            check=True,
        )
        assert json.loads(done.stdout) == state
        assert done.stderr == ""


@pytest.mark.parametrize("each", kinds(), ids=lambda each: type(each).__name__)
def test_a_restored_one_parts_texts_alike(each: Tokenizer) -> None:
    state = each.state()
    assert all(type(part) in (str, bool, list) for part in state.values())
    for again in (tokenizer_from_state(copy.deepcopy(state)), pickle.loads(pickle.dumps(each))):
        assert type(again) is type(each)
        assert again.state() == state
        for text in (*CORPUS, "never seen: \U0001f600 ß\u0301"):
            assert again.encode(text) == each.encode(text)


def changed(**parts: Any) -> dict[str, Any]:
    return {**SUBWORDS.state(), **parts}


PIECES, MERGES = SUBWORDS.state()["pieces"], SUBWORDS.state()["merges"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, "the tokeniser is None, not a mapping"),
        ({"kind": "words"}, "lacks lower"),
        ({"kind": "os.system", "lower": False}, "kind is 'os.system', not one of words, characters, subwords"),
        ({"kind": ["words"], "lower": False}, "kind is a list"),
        ({"kind": "words", "lower": 1}, "lower is 1, not true or false"),
        ({"kind": "subwords", "lower": False}, "0 pieces"),
        (changed(pieces=PIECES[:100]), "100 pieces"),
        (changed(pieces="abc"), "pieces is 'abc', not a list"),
        (changed(pieces=[*PIECES, 3]), "pieces.330 is 3"),
        (changed(pieces=[*PIECES, ""]), "pieces.330 is ''"),
        (changed(pieces=[*PIECES, "a" * 2000]), "pieces.330 is 'aaa"),
        (changed(pieces=[*PIECES, PIECES[0]]), "a piece twice"),
        (changed(pieces=[f"x{number}" for number in range(300)], merges=[]), "no piece for some bytes"),
        (changed(pieces=[*PIECES, "ab cd"]), "letters that stand for no bytes"),
        (changed(pieces=[*PIECES, "\ud800"]), "letters that stand for no bytes"),
        (changed(merges=[*MERGES, "a"]), "merges.74 is 'a'"),
        (changed(merges=[*MERGES, "abc"]), "a merge of no pieces"),
        (changed(merges=[*MERGES, "zz qq"]), "a merge of no pieces"),
        (changed(merges=[*MERGES, "a b c"]), "a merge of no pieces"),
        (changed(merges=[["a", "b"]]), "merges.0 is a list"),
        (changed(merges=MERGES * 6), "more merges than pieces"),
    ],
)
def test_a_strangers_state(state: Any, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        tokenizer_from_state(state)


def test_half_of_a_surrogate_pair() -> None:
    with pytest.raises(DataError, match="half of a surrogate pair"):
        SUBWORDS.encode("a \ud800")


@pytest.mark.parametrize("options", [{"size": 256}, {"size": 1 << 21}, {"min_count": 0}])
def test_what_makes_no_sense(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"size=.* and min_count="):
        Subwords(**options)
    with pytest.raises(RuntimeError, match="call fit first"):
        Subwords().encode("a")


@pytest.mark.real
@pytest.mark.parametrize("language", ["de", "en"])
def test_no_line_of_multi30k_is_lost(language: str) -> None:
    path = Path(os.environ.get("ZOO_DATA", "data")) / "multi30k" / f"train.{language}.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    lines = gzip.decompress(path.read_bytes()).decode().split("\n")[:2000]
    learned = Subwords(size=2000).fit(lines)
    assert [learned.decode(learned.encode(line).names) for line in lines] == lines
