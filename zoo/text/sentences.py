"""Splits texts into sentences."""

from __future__ import annotations

from zoo.errors import DataError
from zoo.text.html import remove_markup
from zoo.text.tokens import Span


def sentence_spans(text: str, language: str = "en") -> list[Span]:
    """Returns the span of each sentence, without surrounding white space. HTML in the text is ignored.

    Args:
        text: Text, which may have HTML tags and entities.
        language: Language code, such as en, de or fr, which decides on abbreviations.

    Raises:
        DataError: The text has single surrogates.
    """
    from sentencex import get_sentence_boundaries

    plain = remove_markup(text)
    spans = []
    try:
        boundaries = get_sentence_boundaries(language, plain.text)
    except UnicodeEncodeError as error:
        raise DataError("the text has half of a surrogate pair, which is not a character") from error
    for boundary in boundaries:
        sentence = boundary["text"]
        start = boundary["start_index"] + len(sentence) - len(sentence.lstrip())
        end = boundary["start_index"] + len(sentence.rstrip())
        if start < end:
            spans.append(plain.origin(start, end))
    return spans
