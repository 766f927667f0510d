"""The form of a checkpoint's content: what each part must be, and how an older format becomes the present one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, strided

FORMAT = 1

_DEEPEST = 64
_MOST_PARTS = 1_000_000
_LEAST_LIMIT = 1 << 20
_LEAVES = {str, int, float, bool, type(None), Tensor}
_CONTAINERS = {dict, list, tuple, OrderedDict}


class MalformedError(Exception):
    """What of a checkpoint is not as it must be."""


def _from_0(content: dict[str, Any]) -> dict[str, Any]:
    """Format 0, of before the first release: the sizes stood among the data, and metrics were not kept."""
    about = dict(content["zoo"])
    data = dict(about.get("data") or {})
    about["sizes"] = about.get("sizes", data.pop("sizes", None))
    return {**content, "zoo": {"version": "0.0", "metrics": {}, **about, "data": data, "format": 1}}


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {0: _from_0}
"""Format -> what makes the next one of it."""


def migrated(content: dict[str, Any]) -> dict[str, Any]:
    """The content in the present format."""
    while (number := content["zoo"]["format"]) < FORMAT:
        if number not in MIGRATIONS:
            raise MalformedError(f"format {number} is not known")
        content = MIGRATIONS[number](content)
    return content


def check(content: Mapping[str, Any]) -> None:
    """Refuses a content whose parts are not of the types that they must be."""
    about = content["zoo"]
    _expect_kinds(about, {"version": str, "model": str, "config": dict, "data": dict, "sizes": dict, "metrics": dict})
    config = about["config"]
    _expect_kinds(config, {"model": dict, "data": dict, "names": dict, "overrides": list}, "config.")
    if not all(isinstance(override, str) for override in config["overrides"]):
        raise MalformedError("config.overrides is not a list of texts")
    for name, size in about["sizes"].items():
        if not isinstance(name, str) or type(size) is not int or size < 0:
            raise MalformedError(f"sizes.{name} is {size!r}, not a number of things")
    for name, value in about["metrics"].items():
        if not isinstance(name, str) or type(value) not in (int, float):
            raise MalformedError(f"metrics.{name} is {value!r}, not a number")
    _check_plain(about, "zoo")
    _check_plain({key: value for key, value in content.items() if key not in ("zoo", "state_dict")}, "content")
    for name, weight in content["state_dict"].items():
        if not isinstance(name, str):
            raise MalformedError(f"a weight is called {name!r}, which is not a text")
        if not isinstance(weight, Tensor) or weight.layout != strided or weight.device.type != "cpu":
            raise MalformedError(f"the weight {name!r} is not a plain tensor")


def check_sizes(about: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Refuses numbers that could be sizes of a model only if it were far larger than its weights."""
    most = max(_LEAST_LIMIT, sum(weight.numel() for weight in weights.values()))
    waiting: list[tuple[str, Any]] = [("sizes", about["sizes"]), ("config.model", about["config"]["model"])]
    while waiting:
        where, each = waiting.pop()
        if type(each) is int and abs(each) > most:
            raise MalformedError(f"{where} is {each:,}, and the weights are {most:,} numbers at most")
        if isinstance(each, Mapping):
            waiting += [(f"{where}.{key}", value) for key, value in each.items()]
        elif isinstance(each, list | tuple):
            waiting += [(f"{where}.{number}", value) for number, value in enumerate(each)]


def _expect_kinds(node: Mapping[str, Any], kinds: Mapping[str, type], prefix: str = "") -> None:
    said: dict[type, str] = {str: "a text", dict: "a mapping", list: "a list"}
    for key, kind in kinds.items():
        if not isinstance(node.get(key), kind):
            raise MalformedError(f"{prefix}{key} is {_short(node.get(key))}, not {said[kind]}")


def _check_plain(node: Mapping[str, Any], root: str) -> None:
    """Plain types throughout, keys that are texts or whole numbers, and an end to the nesting."""
    waiting: list[tuple[int, Any]] = [(0, node)]
    seen = 0
    while waiting:
        depth, each = waiting.pop()
        seen += 1
        if depth > _DEEPEST:
            raise MalformedError(f"{root} is nested more than {_DEEPEST} levels deep")
        if seen > _MOST_PARTS:
            raise MalformedError(f"{root} has more than {_MOST_PARTS:,} parts")
        if isinstance(each, Mapping):
            for key in each:
                if type(key) not in (str, int):
                    raise MalformedError(f"{root} has a key {_short(key)}, which is neither a text nor a whole number")
        values = each.values() if isinstance(each, Mapping) else each
        for kind in set(map(type, values)) - _LEAVES - _CONTAINERS:
            raise MalformedError(f"{root} holds a {kind.__name__}")
        waiting += [(depth + 1, value) for value in values if type(value) in _CONTAINERS]


def _short(value: Any) -> str:
    if isinstance(value, dict | list | tuple):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
