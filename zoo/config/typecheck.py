"""Checks values of a configuration against types of signatures."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from zoo.types import describe, meets

_SCALARS = (bool, int, str, NoneType)


def explain_mismatch(value: Any, hint: Any, name: str) -> str | None:
    """Returns a sentence that says why a value does not fit a type; None if it does."""
    if matches(value, hint):
        return None
    hint_of_quotes = f"; as text: \"{name}='{value}'\"" if _takes_text(hint) and type(value) in (int, float) else ""
    return f"{name}={value!r} does not fit: it is to be {describe(hint)}{hint_of_quotes}"


def matches(value: Any, hint: Any) -> bool:
    """Returns whether a value fits a type. A node with a `_target_` fits wherever an object belongs."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return matches(value, arguments[0]) and all(meets(value, condition) for condition in arguments[1:])
    if origin in (Union, UnionType):
        return any(matches(value, argument) for argument in arguments)
    if origin is Literal:
        return any(type(value) is type(argument) and value == argument for argument in arguments)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    if hint in _SCALARS:
        return type(value) is hint
    kind = origin or hint
    if not inspect.isclass(kind) or kind is object:  # Any, a variable
        return True
    if isinstance(value, list | tuple):
        return _is_a(kind, Iterable) and not _is_a(kind, Mapping) and _all_match(value, arguments)
    if isinstance(value, Mapping):
        if "_target_" not in value and _is_a(kind, Mapping):
            return _all_match(list(value.values()), arguments[1:])
        return "_target_" in value or not _is_a(kind, Iterable)
    return False


def get_hints(target: Any) -> dict[str, Any]:
    """Returns the types of a callable's options with their ranges, as far as they are known."""
    try:
        return get_type_hints(target.__init__ if inspect.isclass(target) else target, include_extras=True)
    except (NameError, TypeError):  # a type that is imported for the type checker alone
        return {}


def is_constrained(hint: Any) -> bool:
    """Returns whether every number in a type has a range, or is marked as any."""
    if get_origin(hint) is Annotated:
        return True
    return hint not in (int, float) and all(map(is_constrained, _get_members(hint)))


def _get_members(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, UnionType):
        return get_args(hint)
    kind = get_origin(hint)
    if _is_a(kind, Mapping):
        return get_args(hint)[1:]
    return get_args(hint) if _is_a(kind, Iterable) else ()


def _all_match(values: Iterable[Any], arguments: tuple[Any, ...]) -> bool:
    """Returns whether all values fit the member type of a list or mapping, if it has one.

    Tuples have members of one type.
    """
    return not arguments or isinstance(arguments[0], TypeVar) or all(matches(value, arguments[0]) for value in values)


def _is_a(kind: Any, parent: type) -> bool:
    return inspect.isclass(kind) and issubclass(kind, parent)


def _takes_text(hint: Any) -> bool:
    return hint is str or (get_origin(hint) in (Union, UnionType) and str in get_args(hint))
