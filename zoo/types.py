"""Types that give the valid range of a number in a signature: `dim: PositiveInt`, `dropout: Probability`.

A range is a type with conditions, `Annotated[int, ">= 1"]`, and is stated once, in the signature. A configuration is
compared with signatures before anything is built, and `validate_ranges` compares the arguments of every call:

    @validate_ranges
    class FeedForward(nn.Module):
        def __init__(self, *, dim: PositiveInt, dropout: Probability = 0.0) -> None: ...

    FeedForward(dim=0)  # ValueError: FeedForward(dim=0) does not fit: dim is to be a whole number of at least 1
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

PositiveInt = Annotated[int, ">= 1"]
NonNegativeInt = Annotated[int, ">= 0"]
Seed = Annotated[int, ">= 0", "< 4294967296"]
PositiveFloat = Annotated[float, "> 0"]
NonNegativeFloat = Annotated[float, ">= 0"]
Fraction = Annotated[float, ">= 0", "<= 1"]
PositiveFraction = Annotated[float, "> 0", "<= 1"]
Probability = Annotated[float, ">= 0", "< 1"]
"""That of dropout, which must be below 1 so that something is kept, and of what is removed or smoothed like it."""
AnyInt = Annotated[int, "any"]
AnyFloat = Annotated[float, "any"]

_RANGES = re.compile(r"\b(Annotated|(Positive|NonNegative|Any)(Int|Float)|(Positive)?Fraction|Probability|Seed)\b")
_CONDITIONS = {
    ">=": (operator.ge, "of at least"),
    "<=": (operator.le, "of at most"),
    ">": (operator.gt, "above"),
    "<": (operator.lt, "below"),
}
_DESCRIPTIONS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "null"}

F = TypeVar("F", bound=Callable[..., Any])


class TextPattern(NamedTuple):
    """A form that the texts of an option have, as a part of its type, as a range is one of numbers.

    Args:
        pattern: The regular expression of the whole text.
        description: What that form is, for messages.
    """

    pattern: str
    description: str


def validate_ranges(called: F) -> F:
    """Decorates a class or function whose calls then refuse numbers outside of the ranges in its signature.

    Values other than numbers, lists and mappings of numbers are for the type checker. A class has a constructor of its
    own, which a decorator below, such as `dataclass`, may have written.
    """
    if not inspect.isclass(called):
        return _validate_calls(called, called.__qualname__)
    if "__init__" not in vars(called):
        raise TypeError(f"{called.__qualname__} has no constructor of its own")
    setattr(called, "__init__", _validate_calls(vars(called)["__init__"], called.__qualname__))  # noqa: B010
    return called


def get_ranges(called: Callable[..., Any]) -> dict[str, Any]:
    """Returns the types of those parameters of a class or function that have a range."""
    return _read_signature(called.__init__ if inspect.isclass(called) else called)[1]


def has_range(hint: Any) -> bool:
    """Returns whether a part of a type has a range."""
    return get_origin(hint) is Annotated or any(map(has_range, get_args(hint)))


def meets(value: Any, condition: str | TextPattern) -> bool:
    """Returns whether a value of the right type meets a condition of an `Annotated` type."""
    if isinstance(condition, TextPattern):
        return re.fullmatch(condition.pattern, value) is not None
    if condition == "any":
        return True
    compare, bound = _parse(condition)
    return bool(compare(value, bound))


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
    if hint in (bool, int, str, NoneType):
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


def describe(hint: Any) -> str:
    """Returns a type in words, for messages."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        conditions = [_describe_condition(condition) for condition in arguments[1:] if condition != "any"]
        return " ".join([describe(arguments[0]), " and ".join(conditions)]).strip()
    if origin in (Union, UnionType):
        return " or ".join(map(describe, arguments))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if hint in _DESCRIPTIONS:
        return _DESCRIPTIONS[hint]
    kind = origin or hint
    if _is_a(kind, Mapping):
        return f"a mapping, each value {describe(arguments[1])}" if len(arguments) == 2 else "a mapping"
    if _is_a(kind, Iterable):
        return f"a list, each {describe(arguments[0])}" if arguments else "a list"
    return f"a {getattr(kind, '__name__', kind)}"


def _all_match(values: Iterable[Any], arguments: tuple[Any, ...]) -> bool:
    """Returns whether all values fit the member type of a list or mapping, if it has one.

    Tuples have members of one type.
    """
    return not arguments or isinstance(arguments[0], TypeVar) or all(matches(value, arguments[0]) for value in values)


def _takes_text(hint: Any) -> bool:
    return hint is str or (get_origin(hint) in (Union, UnionType) and str in get_args(hint))


@functools.cache
def _parse(condition: str) -> tuple[Callable[[Any, Any], Any], float]:
    """Returns the comparison and the bound of a condition."""
    sign, bound = condition.split()
    return _CONDITIONS[sign][0], float(bound)


def _validate_calls(function: F, name: str) -> F:
    @functools.wraps(function)
    def validate_and_call(*positional: Any, **named: Any) -> Any:
        names, hints = _read_signature(function)
        for key, value in (*zip(names, positional, strict=False), *named.items()):
            if key in hints and not _is_within(value, hints[key]):
                raise ValueError(f"{name}({key}={value!r}) does not fit: {key} is to be {describe(hints[key])}")
        return function(*positional, **named)

    return validate_and_call  # type: ignore[return-value]


@functools.cache
def _read_signature(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Returns the names of all parameters, and the types of those that have a range, resolved when first called."""
    inner, hints = inspect.unwrap(function), dict[str, Any]()
    for name, hint in inner.__annotations__.items():
        try:
            alone = SimpleNamespace(__annotations__={name: hint})
            hints |= get_type_hints(alone, inner.__globals__, include_extras=True)
        except NameError:  # a type that is imported for the type checker alone
            if _RANGES.search(hint):
                raise
    return tuple(inspect.signature(function).parameters), {key: hints[key] for key in hints if has_range(hints[key])}


def _is_within(value: Any, hint: Any) -> bool:
    """Returns whether all numbers of a value lie in the ranges of a type. Lists have members of one type."""
    if isinstance(value, bool) or not isinstance(value, Real | list | tuple | Mapping):
        return True
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(value, list | tuple | Mapping):
        kind = Mapping if isinstance(value, Mapping) else Sequence
        if origin in (Union, UnionType):
            alike = [option for option in arguments if _is_a(get_origin(option), kind)]
            return not alike or any(_is_within(value, option) for option in alike)
        members = value.values() if isinstance(value, Mapping) else value
        return not _is_a(origin, kind) or all(_is_within(member, arguments[kind is Mapping]) for member in members)
    if origin in (Union, UnionType):
        return any(_is_within(value, option) for option in arguments)
    if origin is Annotated:
        return _is_within(value, arguments[0]) and all(meets(value, condition) for condition in arguments[1:])
    if origin is Literal:
        return value in arguments
    if hint is float:
        return math.isfinite(value)
    return hint is Any or (inspect.isclass(hint) and isinstance(value, Integral if hint is int else hint))


def _is_a(kind: Any, parent: type) -> bool:
    return inspect.isclass(kind) and issubclass(kind, parent)


def _describe_condition(condition: str | TextPattern) -> str:
    if isinstance(condition, TextPattern):
        return f"of the form {condition.description}"
    sign, bound = condition.split()
    return f"{_CONDITIONS[sign][1]} {bound}"
