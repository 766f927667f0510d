"""Captions as they are learned and compared: in small letters, without punctuation, if so asked."""

from __future__ import annotations

from dataclasses import replace

from zoo.data.option_hints import format_option
from zoo.errors import DataError
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.text import Words

_WORDS = Words()


def normalize_captions(pictures: CaptionSet, *, lower: bool, punctuation: bool) -> CaptionSet:
    """Returns pictures with captions in small letters or without punctuation.

    Args:
        pictures: The pictures. Captions of which nothing remains are left out.
        lower: Whether captions are put in small letters.
        punctuation: Whether punctuation stays. Words without it have single spaces between them.

    Raises:
        DataError: Nothing remains of all captions of a picture.
    """
    if pictures.captions is None or (punctuation and not lower):
        return pictures
    captions = []
    for id, texts in zip(pictures.ids, pictures.captions, strict=True):
        plain = [text.lower() if lower else text for text in texts]
        captions.append([each for each in plain if each] if punctuation else list(filter(None, map(_words, plain))))
        if not captions[-1]:
            raise DataError(
                f"{id}: no caption of it has a word. Write one, or give {format_option('punctuation', 'true')}."
            )
    return replace(pictures, captions=captions)


def _words(text: str) -> str:
    return " ".join(word for word in _WORDS.encode(text).names if any(map(str.isalnum, word)))
