"""Forms the plurals of nouns in messages."""

from __future__ import annotations


def pluralize(noun: str, count: int = 2) -> str:
    """Returns a noun, given in the singular, in the form for so many of it."""
    if count == 1:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    is_hissing = noun.endswith(("s", "x", "ch", "sh")) and not noun.endswith("poch")  # as in batches, not in epochs
    return f"{noun}es" if is_hissing else f"{noun}s"


def count_noun(count: int, noun: str, plural: str = "") -> str:
    """Returns a count and its noun: "1 row", "2,000 rows".

    Args:
        count: How many there are.
        noun: What, in the singular.
        plural: The plural, if it is not made of the singular by a rule.
    """
    return f"{count:,} {plural if plural and count != 1 else pluralize(noun, count)}"
