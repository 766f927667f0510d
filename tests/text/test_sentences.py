"""Sentences, and the way back from a text without markup to where it stood."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.errors import DataError
from zoo.text import remove_markup, sentence_spans


def said(text: str, language: str = "en") -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text, language)]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Smith liked it.", "I did not!", 'He said "No." twice.']),
        ("de", ["Dr. Müller kam z.B. am 3. Mai an.", "Schön 😀, oder?", "Ja."]),
        ("en", ["The best film I saw here.", "Bad acting, though."]),
    ],
)
def test_ordinary_sentences(language: str, sentences: list[str]) -> None:
    assert said(" ".join(sentences), language) == sentences


def test_a_missing_space_and_a_line_break_of_html_end_a_sentence() -> None:
    assert said("I was here.Bad film.") == ["I was here.", "Bad film."]
    text = "A film<br /><br />It &quot;works&quot; <b>well</b>.<p>Really"
    assert said(text) == ["A film", "It &quot;works&quot; <b>well</b>.", "Really"]


def test_nothing_is_no_sentence() -> None:
    assert said("") == said(" \n\n ") == said("<br /><br />") == []


LETTERS = st.text(st.sampled_from("ab. Z\n\t😀é!?<>/brp&;#x26amp3"), max_size=60)
PARTS = st.lists(st.sampled_from(["<br />", "</p>", "<b>", "&amp;", "&#x1F600;", "Dr. A", "b. ", "é", "\n\n", " "]))


@given(text=LETTERS | PARTS.map("".join) | st.text(st.characters(exclude_categories=["Cs"])))
def test_sentences_stand_one_after_another_and_lose_nothing(text: str) -> None:
    spans = sentence_spans(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    plain = remove_markup(text)
    found = "".join(remove_markup(text[start:end]).text for start, end in spans)
    # what is cut may read as markup that was none in its place, as in &am<b>p; so it is compared where nothing was left
    if remove_markup(plain.text).text == plain.text:
        assert "".join(found.split()) == "".join(plain.text.split())


@given(text=LETTERS | PARTS.map("".join))
def test_every_character_has_its_origin(text: str) -> None:
    plain = remove_markup(text)
    for place, letter in enumerate(plain.text):
        start, end = plain.origin(place, place + 1)
        origin = text[start:end]
        assert letter in (origin, remove_markup(origin).text)
    starts = [plain.origin(place, place + 1)[0] for place in range(len(plain.text))]
    assert starts == sorted(starts)
    if plain.text == text:
        assert plain.origin(0, len(text)) == (0, len(text))


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a<br/>b<BR>c</p >d", "a\nb\nc\nd"),
        ("<a href='x>y'>no", "y'>no"),
        ("5 < 6 and <3 <unk> <John> a<b", "5 < 6 and <3 <unk> <John> a<b"),
        ("R&B &amp; &lt;br&gt; &nope; &#0; &#xD800; &#99999999;", "R&B & <br> &nope; � � &#99999999;"),
        ("<i>so</i> <span class=x>good</span>", "so good"),
    ],
)
def test_what_is_markup(text: str, plain: str) -> None:
    assert remove_markup(text).text == plain


def test_half_of_a_surrogate_pair() -> None:
    with pytest.raises(DataError, match="half of a surrogate pair"):
        sentence_spans("a \ud800")


def test_long_texts_take_time_in_proportion() -> None:
    for hostile in ("<b " * 200_000, "&a" * 300_000, "<br" + " a" * 300_000, "( " * 300_000, "a.b" * 200_000):
        assert len(sentence_spans(hostile)) >= 1
