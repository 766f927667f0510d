"""What plain content must be, written in plain Python, and one sentence about the first place that is otherwise.

    {"labels": [str], "share": float, "titles": ([str], None)}

A dictionary of names wants each of them, but one with a question mark at its end, and lets others be; `{str: ...}` says
what every key and value is, a list what each member is, a tuple what it may be instead. Types are exact, except that a
whole number serves as a float.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LARGEST = 1 << 53
"""Whole numbers up to here are floats too; none that a run counts is larger."""
_LONGEST = 60


class MalformedError(Exception):
    """What of a content is not as it must be."""


@dataclass(frozen=True)
class Where:
    """A value for which a condition holds.

    Args:
        said: What it is then, for messages: "a number of things".
        holds: The condition. It is given any value.
    """

    said: str
    holds: Callable[[Any], bool]


COUNT = Where("a whole number from 0", lambda value: type(value) is int and 0 <= value < _LARGEST)
ANY = Where("anything", lambda value: True)


def expect(value: Any, schema: Any, where: str) -> None:
    """Refuses a value that is not as the schema says.

    Args:
        value: Of plain types.
        schema: See above.
        where: Its name, for the message.

    Raises:
        MalformedError: where it differs first, and what belongs there.
    """
    if not _is_kind(value, schema):
        raise MalformedError(f"{where} is {short(value)}, not {_said(schema)}")
    if isinstance(schema, tuple):
        schema = next(each for each in schema if _is_kind(value, each))
    if isinstance(schema, list) and not _are_all(value, schema[0]):
        for number, each in enumerate(value):
            expect(each, schema[0], f"{where}.{number}")
    for name, inner in schema.items() if isinstance(schema, dict) else ():
        if isinstance(name, str):
            _expect_entry(value, name, inner, where)
            continue
        for key, each in value.items():
            expect(key, name, f"a key of {where}")
            expect(each, inner, f"{where}.{key}")


def expect_like(value: Any, model: Any, where: str) -> None:
    """Refuses a value that is not built as another one is: the same keys, as many members, numbers for numbers.

    Args:
        value: Of plain types.
        model: One that is known to be good. Its texts, truth values and gaps have to be there.
        where: Its name, for the message.
    """
    if isinstance(model, Mapping):
        if not isinstance(value, Mapping) or value.keys() != model.keys():
            raise MalformedError(f"{where} is {short(value)}, and has not the entries {', '.join(map(str, model))}")
        for key, each in model.items():
            expect_like(value[key], each, f"{where}.{key}")
    elif isinstance(model, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(model):
            raise MalformedError(f"{where} is {short(value)}, not a list of {len(model)}")
        for number, each in enumerate(model):
            expect_like(value[number], each, f"{where}.{number}")
    elif type(model) in (int, float):
        is_finite = math.isfinite(model)
        expect(
            value, Where("a number", lambda each: _is_number(each) and (math.isfinite(each) or not is_finite)), where
        )
    elif type(value) is not type(model) or value != model:
        raise MalformedError(f"{where} is {short(value)}, not {short(model)}")


def _expect_entry(value: Mapping[Any, Any], name: str, schema: Any, where: str) -> None:
    key = name.removesuffix("?")
    if key in value:
        expect(value[key], schema, f"{where}.{key}")
    elif key == name:
        raise MalformedError(f"{where} lacks {key}")


def _are_all(values: Sequence[Any], schema: Any) -> bool:
    """Whether all are of a kind that has nothing inside: of a million names none needs a name of its own."""
    return not isinstance(schema, dict | list | tuple) and all(_is_kind(each, schema) for each in values)


def short(value: Any) -> str:
    """A value in a message."""
    if isinstance(value, dict | list | tuple):
        return f"a {type(value).__name__}"
    text = repr(value) if not hasattr(value, "shape") else f"a tensor of {tuple(value.shape)}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < _LARGEST)


def _is_kind(value: Any, schema: Any) -> bool:
    """Whether a value is what a schema says, without a look at what it holds."""
    if isinstance(schema, tuple):
        return any(_is_kind(value, each) for each in schema)
    if isinstance(schema, Where):
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


def _said(schema: Any) -> str:
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
        return " or ".join(map(_said, schema))
    if isinstance(schema, Where):
        return schema.said
    if isinstance(schema, dict | list):
        return "a mapping" if isinstance(schema, dict) else "a list"
    return words.get(schema, f"a {getattr(schema, '__name__', schema)}".lower())
