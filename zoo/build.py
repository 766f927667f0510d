"""From configuration to objects: what a `_target_` may be, and which options it has."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from zoo.errors import ConfigError, ZooError, nearest

ALLOWED = ("zoo.attention.", "zoo.tasks.", "zoo.optimisation.", "zoo.callbacks.", "zoo.loggers.", "torch.optim.")
"""What may be built: a configuration inside a checkpoint comes from a stranger, and any callable would run code."""

_RESERVED = {"_target_", "_partial_"}


def build(node: Mapping[str, Any], path: str, **given: Any) -> Any:
    """Builds what a node describes.

    Args:
        node: `_target_`, its options, and `_partial_: true` where a factory is wanted.
        path: Where the node stands in the configuration, for messages.
        given: Options that are not in the configuration, such as sizes that the data knows.
    """
    check(node, path, given=set(given))
    from hydra.utils import instantiate

    try:
        # What is given stays out of Hydra's hands, which would build every `_target_` inside it.
        made = instantiate({**node, "_partial_": True}, _convert_="all")
        return made if node.get("_partial_") else made(**given)
    except Exception as error:
        cause = _root_cause(error)
        if isinstance(cause, ZooError):
            raise cause from error
        if isinstance(cause, ValueError | TypeError):
            raise ConfigError(f"{path}: {cause}") from error
        raise


def check(node: Mapping[str, Any], path: str, given: set[str] | None = None) -> None:
    """Refuses targets that may not be built, options they do not have, and values that were not given."""
    for where, each in _targets(node, path):
        target = each["_target_"]
        found = resolve(target, where)
        signature, hints = inspect.signature(found), _hints(found)
        known = {n for n, p in signature.parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        for key, value in each.items():
            if key not in known | _RESERVED:
                raise ConfigError(f"{where} has no option {key!r}. {nearest(key, known)}")
            if value == "???":
                raise ConfigError(f"{where}.{key} must be given: {where}.{key}=VALUE")
            if key in hints and not _fits(value, hints[key]):
                raise ConfigError(f"{where}.{key}={value!r} does not fit: it is to be {_said(hints[key])}")
        needed = {n for n, p in signature.parameters.items() if p.default is p.empty and n in known}
        missing = needed - set(each) - ((given or set()) if where == path else set())
        if missing and not each.get("_partial_"):
            raise ConfigError(f"{where} needs {', '.join(sorted(missing))}")


def resolve(target: Any, where: str) -> Any:
    """The class or function of an allowed dotted name."""
    if not isinstance(target, str) or not target.startswith(ALLOWED) or "__" in target:
        raise ConfigError(f"{where}: {target!r} may not be built; what may be is {', '.join(a + '*' for a in ALLOWED)}")
    import importlib

    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where}: {target!r} cannot be imported: {error}") from error
    defined_in = getattr(found, "__module__", "") or ""
    if not callable(found) or not f"{defined_in}.".startswith(ALLOWED):
        raise ConfigError(f"{where}: {target!r} may not be built; it is not one of this project's parts")
    return found


def _hints(target: Any) -> dict[str, Any]:
    """The types of its options, as far as they can be known."""
    try:
        return get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except (NameError, TypeError):  # a type that is imported for the type checker alone
        return {}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value can be of a type; what lists and mappings hold is left to the target itself."""
    if isinstance(value, Mapping | list | tuple):
        return True
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint is float:
        return type(value) in (int, float)
    if hint in (bool, int, str, NoneType):
        return type(value) is hint
    return hint in (Any, object) or not inspect.isclass(get_origin(hint) or hint)  # else a list or an object belongs


def _said(hint: Any) -> str:
    """A type in words."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_said, get_args(hint)))
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "null"}
    return words.get(hint, f"a {(get_origin(hint) or hint).__name__}")


def _targets(node: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield path, node
        for key, value in node.items():
            yield from _targets(value, f"{path}.{key}")
    elif isinstance(node, list | tuple):
        for number, value in enumerate(node):
            yield from _targets(value, f"{path}.{number}")


def _root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
