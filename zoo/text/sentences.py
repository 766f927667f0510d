"""Sentences of a text, as `sentencex` finds them."""

from __future__ import annotations

from zoo.errors import DataError
from zoo.text.markup import without_markup
from zoo.text.tokens import Span


def sentence_spans(text: str, language: str = "en") -> list[Span]:
    """Where each sentence stands in the text, without white space around it; HTML in it is looked through.

    Args:
        text: Of any length.
        language: Its code, by which abbreviations are known: en, de, fr.

    Raises:
        DataError: The text has half of a surrogate pair.
    """
    from sentencex import get_sentence_boundaries

    plain = without_markup(text)
    found = []
    try:
        boundaries = get_sentence_boundaries(language, plain.text)
    except UnicodeEncodeError as error:
        raise DataError("the text has half of a surrogate pair, which is no character") from error
    for each in boundaries:
        sentence = each["text"]
        start = each["start_index"] + len(sentence) - len(sentence.lstrip())
        end = each["start_index"] + len(sentence.rstrip())
        if start < end:
            found.append(plain.origin(start, end))
    return found
