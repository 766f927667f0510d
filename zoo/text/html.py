"""Removes HTML from texts, and maps spans of the plain text back to the original."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from html import unescape

import regex

from zoo.text.tokens import Span

_BREAKS = "br|p|div|li|ul|ol|dl|dt|dd|tr|table|thead|tbody|h[1-6]|hr|blockquote|pre|section|article|header|footer"
_INLINE = "a|b|i|u|s|q|em|strong|span|font|small|big|sub|sup|tt|code|kbd|cite|abbr|acronym|del|ins|mark|strike|center"
_MARKUP = regex.compile(
    rf"<(?P<slash>/?)(?:(?P<breaks>{_BREAKS})|{_INLINE}|td|th|img|wbr)(?:\s[^<>]{{0,2000}})?/?>"
    r"|(?P<entity>&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,31});)",
    regex.IGNORECASE,
)


@dataclass(frozen=True)
class PlainText:
    """A text without markup, in parts that correspond to parts of the original."""

    text: str
    starts: list[int]
    """Position of each part's first character."""
    origins: list[Span]
    """Span of each part in the original. If it has the length of the part, characters correspond one by one; if not,
    each character of the part corresponds to the whole span."""

    def origin(self, start: int, end: int) -> Span:
        """Returns the span in the original of the characters from `start` to `end`."""
        if start == end:
            place = self._place(start)[0]
            return place, place
        return self._place(start)[0], self._place(end - 1)[1]

    def _place(self, position: int) -> Span:
        part = bisect_right(self.starts, position) - 1
        start, end = self.origins[part]
        length = (self.starts[part + 1] if part + 1 < len(self.starts) else len(self.text)) - self.starts[part]
        if end - start != length:
            return start, end
        return start + position - self.starts[part], start + position - self.starts[part] + 1


def remove_markup(text: str) -> PlainText:
    """Replaces tags that end a line by line breaks and entities by their characters; removes other tags.

    Only names of HTML tags count as tags: `a < b`, `<3` and `<unk>` are text.
    """
    parts: list[str] = []
    starts, origins, position, length = [], [], 0, 0
    for match in _MARKUP.finditer(text):
        start, end = match.span()
        entity = match["entity"]
        replacement = unescape(entity) if entity else "\n" if match["breaks"] else ""
        if entity and (replacement == entity or not _is_text(replacement)):
            continue
        for part, origin in ((text[position:start], (position, start)), (replacement, (start, end))):
            if part:
                parts.append(part)
                starts.append(length)
                origins.append(origin)
                length += len(part)
        position = end
    if position < len(text) or not starts:
        parts.append(text[position:])
        starts.append(length)
        origins.append((position, len(text)))
    return PlainText("".join(parts), starts, origins)


def _is_text(characters: str) -> bool:
    """Returns True if the characters of an entity are neither NUL nor single surrogates."""
    return not any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in characters)
