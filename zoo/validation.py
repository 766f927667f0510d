"""Checks plain content against a schema, and says in one sentence where it differs first.

    {"labels": [str], "share": float, "titles": ([str], None)}

A dictionary of names requires these entries, except for names that end in a question mark, and allows others;
`{str: ...}` gives the type of all keys and values, a list that of all members, and a tuple lists alternatives. Types
are exact, except that a whole number is accepted as a float.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MAX_EXACT_INT = 1 << 53
"""Whole numbers up to this one are exact as floats."""
_MAX_LENGTH = 60


class ValidationError(Exception):
    """A content differs from its schema; the message says where."""


@dataclass(frozen=True)
class Predicate:
    """Values for which a condition holds, as a part of a schema.

    Args:
        description: What they are, for messages, such as "a whole number from 0".
        holds: The condition. It is called with any value.
    """

    description: str
    holds: Callable[[Any], bool]


COUNT = Predicate("a whole number from 0", lambda value: type(value) is int and 0 <= value < _MAX_EXACT_INT)
ANY = Predicate("anything", lambda value: True)


def validate(value: Any, schema: Any, location: str) -> None:
    """Checks a value against a schema.

    Args:
        value: The content, of plain types.
        schema: The schema, as described above.
        location: The name of the content, for the message.

    Raises:
        ValidationError: The value differs; the message says where first, and what belongs there.
    """
    if not _is_kind(value, schema):
        raise ValidationError(f"{location} is {abbreviate(value)}, not {_describe(schema)}")
    if isinstance(schema, tuple):
        schema = next(alternative for alternative in schema if _is_kind(value, alternative))
    if isinstance(schema, list) and not _are_all(value, schema[0]):
        for number, member in enumerate(value):
            validate(member, schema[0], f"{location}.{number}")
    for name, inner in schema.items() if isinstance(schema, dict) else ():
        if isinstance(name, str):
            _validate_entry(value, name, inner, location)
            continue
        for key, member in value.items():
            validate(key, name, f"a key of {location}")
            validate(member, inner, f"{location}.{key}")


def validate_like(value: Any, model: Any, location: str) -> None:
    """Checks that a value is built like another: the same keys, as many members, and numbers in the same places.

    Args:
        value: The content, of plain types.
        model: A valid content. All its values except for numbers have to be equal.
        location: The name of the content, for the message.
    """
    if isinstance(model, Mapping):
        if not isinstance(value, Mapping) or value.keys() != model.keys():
            raise ValidationError(
                f"{location} is {abbreviate(value)}, and has not the entries {', '.join(map(str, model))}"
            )
        for key, entry in model.items():
            validate_like(value[key], entry, f"{location}.{key}")
    elif isinstance(model, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(model):
            raise ValidationError(f"{location} is {abbreviate(value)}, not a list of {len(model)}")
        for number, member in enumerate(model):
            validate_like(value[number], member, f"{location}.{number}")
    elif type(model) in (int, float):
        is_finite = math.isfinite(model)
        validate(
            value,
            Predicate("a number", lambda number: _is_number(number) and (math.isfinite(number) or not is_finite)),
            location,
        )
    elif type(value) is not type(model) or value != model:
        raise ValidationError(f"{location} is {abbreviate(value)}, not {abbreviate(model)}")


def _validate_entry(value: Mapping[Any, Any], name: str, schema: Any, location: str) -> None:
    key = name.removesuffix("?")
    if key in value:
        validate(value[key], schema, f"{location}.{key}")
    elif key == name:
        raise ValidationError(f"{location} lacks {key}")


def _are_all(values: Sequence[Any], schema: Any) -> bool:
    """Returns whether all values fit a schema without inner parts, checked without naming members."""
    return not isinstance(schema, dict | list | tuple) and all(_is_kind(value, schema) for value in values)


def abbreviate(value: Any) -> str:
    """Returns a value as a message shows it."""
    if isinstance(value, dict | list | tuple):
        return f"a {type(value).__name__}"
    text = repr(value) if not hasattr(value, "shape") else f"a tensor of {tuple(value.shape)}"
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < _MAX_EXACT_INT)


def _is_kind(value: Any, schema: Any) -> bool:
    """Returns whether a value is of a schema's type, apart from its inner parts."""
    if isinstance(schema, tuple):
        return any(_is_kind(value, alternative) for alternative in schema)
    if isinstance(schema, Predicate):
        return schema.holds(value)
    if schema is float:
        return _is_number(value)
    if isinstance(schema, list):
        return isinstance(value, list | tuple)
    if isinstance(schema, dict):
        return isinstance(value, dict)
    if schema in (bool, int, str, None):
        return value is None if schema is None else type(value) is schema
    return isinstance(value, schema)


def _describe(schema: Any) -> str:
    words = {
        dict: "a mapping",
        list: "a list",
        str: "a text",
        float: "a number",
        int: "a whole number",
        bool: "true or false",
        None: "nothing",
    }
    if isinstance(schema, tuple):
        return " or ".join(map(_describe, schema))
    if isinstance(schema, Predicate):
        return schema.description
    if isinstance(schema, dict | list):
        return "a mapping" if isinstance(schema, dict) else "a list"
    return words.get(schema, f"a {getattr(schema, '__name__', schema)}".lower())
