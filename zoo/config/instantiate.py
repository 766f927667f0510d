"""Builds objects from a configuration, after checking that each `_target_` is allowed and has the given options."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from zoo.config import plugins
from zoo.config.groups import GROUPS, GROUPS_BY_NODE, Group
from zoo.config.legacy_names import find_successor
from zoo.config.typecheck import explain_mismatch, get_hints
from zoo.errors import ConfigError, MissingPackageError, ZooError, did_you_mean
from zoo.types import Fraction, NonNegativeFloat, PositiveFloat, Probability

ALLOWED = tuple(dict.fromkeys(part for group in GROUPS.values() for part in group.allowed_prefixes))
"""The beginnings of all names that this project's own configurations may build."""
_ANYWHERE = Group("any part", ALLOWED, is_open=True)
"""The rule for a place that is not a group."""
_BACKBONES = ("resnet18", "resnet34", "resnet50", "resnet101", "vgg16", "vit_b_16", "convnext_tiny", "efficientnet_b0")
_OPTIMIZERS = {
    "lr": NonNegativeFloat,
    "weight_decay": NonNegativeFloat,
    "momentum": Probability,
    "dampening": Fraction,
    "betas": Sequence[Probability],
    "eps": PositiveFloat,
}
"""Ranges of options of torch's optimizers."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+", re.ASCII)
_DEEPEST, _MOST_NODES = 32, 100_000
_RESERVED = {"_target_", "_partial_"}


def build(node: Mapping[str, Any], path: str, **given: Any) -> Any:
    """Builds the object that a node describes.

    Args:
        node: `_target_`, its options, and `_partial_: true` where a factory is wanted.
        path: Where the node stands in the configuration, for messages.
        given: Options that are not in the configuration, such as sizes of the data.
    """
    check(node, path, given=set(given))
    from hydra.utils import instantiate

    try:
        # `given` is not passed through Hydra, which would build every `_target_` inside it.
        made = instantiate({**node, "_partial_": True}, _convert_="all")
        return made if node.get("_partial_") else made(**given)
    except Exception as error:
        cause = _find_root_cause(error)
        if isinstance(cause, ZooError):
            raise cause from error
        if isinstance(cause, ValueError | TypeError):
            raise ConfigError(f"{path}: {cause}") from error
        raise


def check(node: Mapping[str, Any], path: str, given: set[str] | None = None) -> None:
    """Refuses targets that may not be built, options that they do not have, and required options without a value."""
    for problem in iter_errors(node, path, given):
        raise problem


def iter_errors(
    node: Mapping[str, Any], path: str, given: set[str] | None = None, but: Collection[Any] = ()
) -> Iterator[ConfigError]:
    """Yields everything that `check` would refuse, except in parts that equal one of `but`."""
    try:
        targets = list(_iter_targets(node, path))
    except ConfigError as error:
        yield error
        return
    found: list[tuple[str, Mapping[str, Any], Any]] = []
    for where, each in targets:  # targets that may not be built come first
        try:
            found.append((where, each, resolve_target(each["_target_"], where, is_root=where == path)))
        except ConfigError as error:
            yield error
    for where, each, target in found:
        if each not in but:
            yield from _iter_option_errors(each, where, target, (given or set()) if where == path else set())


def _iter_option_errors(each: Mapping[str, Any], where: str, target: Any, given: set[str]) -> Iterator[ConfigError]:
    signature, hints = inspect.signature(target), get_option_types(target)
    known = {n for n, p in signature.parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    for key, value in each.items():
        if key not in known | _RESERVED:
            yield ConfigError(f"{where} has no option {key!r}. {did_you_mean(str(key), known)}")
        elif value == "???":
            yield ConfigError(f"{where}.{key} must be given: {where}.{key}=VALUE")
        elif key in hints and (said := explain_mismatch(value, hints[key], f"{where}.{key}")):
            yield ConfigError(said)
    needed = {n for n, p in signature.parameters.items() if p.default is p.empty and n in known}
    missing = needed - set(each) - given
    if missing and not each.get("_partial_"):
        yield ConfigError(f"{where} needs {', '.join(sorted(missing))}")


def check_installed(config: Mapping[str, Any]) -> None:
    """Refuses a configuration with parts of a package that is not installed."""
    for group in GROUPS_BY_NODE:
        for where, each in _iter_targets(config.get(group), group):
            if (missing := plugins.explain_missing(each["_target_"])) is not None:
                raise MissingPackageError(f"{where} is {each['_target_']!r}. {missing}")


def get_option_types(found: Any) -> dict[str, Any]:
    """The type of each option, with the range of its numbers."""
    return {**get_hints(found), **(_OPTIMIZERS if found.__module__.startswith("torch.optim.") else {})}


def resolve_target(target: Any, where: str, *, is_root: bool = False) -> Any:
    """The class or function of an allowed dotted name.

    Args:
        target: The name in the configuration.
        where: Its place, whose first word decides what may be built there.
        is_root: Whether it is the object of that place itself, instead of one of its parts.
    """
    place = where.partition(".")[0]
    group = GROUPS_BY_NODE.get(place, _ANYWHERE)
    added = plugins.find_package(target) if group.is_open and isinstance(target, str) else None
    if not isinstance(target, str) or not _NAME.fullmatch(target) or "__" in target:
        raise _make_refusal(target, where, group)
    if added is None and not target.startswith(group.allowed_prefixes):
        raise _make_refusal(target, where, group)
    if (successor := find_successor(target)) is not None:
        raise ConfigError(f"{where}: {target} is now {successor}")
    module, _, name = target.rpartition(".")
    if module == "torchvision.models" and name not in _BACKBONES:
        raise ConfigError(f"{where}: {target!r} may not be built; of torchvision, {', '.join(_BACKBONES)} may be")
    package, found = _import_member(module, name, where, added)
    # only names that a package exports, and those that torch's modules define
    public = getattr(package, "__all__", ()) if added or module.startswith("zoo.") else (name,)
    home = f"{getattr(found, '__module__', '') or ''}."
    if name not in public or not callable(found) or not home.startswith(f"{module}.") or found.__qualname__ != name:
        owner = "this project's parts" if added is None else f"the parts that {added.distribution} exports"
        raise ConfigError(f"{where}: {target!r} may not be built; it is not one of {owner}")
    if not _is_allowed(found, target, place, is_root):
        raise ConfigError(f"{where}: {target!r} may not be built; it does not belong there")
    return found


def resolve_class(target: Any, place: str) -> type[Any]:
    """The class of what the target of the part of this name makes."""
    found = resolve_target(target, place, is_root=True)
    made: type[Any] = get_hints(found)["return"] if inspect.isfunction(found) else found
    return made


def _make_refusal(target: Any, where: str, group: Group) -> ConfigError:
    added = [f"{each.name}." for each in plugins.find_packages()] if group.is_open else []
    allowed = ", ".join(f"{each}*" for each in (*group.allowed_prefixes, *added))
    refusal = f"{where}: {target!r} may not be built"
    missing = plugins.explain_missing(target) if group.is_open else None
    if missing is not None:
        return MissingPackageError(f"{refusal}. {missing}")
    return ConfigError(f"{refusal}; what may be is {allowed}")


def _import_member(module: str, name: str, where: str, added: plugins.Package | None) -> tuple[Any, Any]:
    """A package and its member. The import of a package that is not ours may raise anything."""
    failures = (ImportError, AttributeError) if added is None else (Exception, SystemExit)
    try:
        package = importlib.import_module(module)
        return package, getattr(package, name)
    except failures as error:
        owner = "" if added is None else f" (of the installed package {added.distribution})"
        raise ConfigError(f"{where}: {f'{module}.{name}'!r}{owner} cannot be imported: {error}") from error


def _is_allowed(found: Any, target: str, place: str, is_root: bool) -> bool:
    """Whether an object with an allowed name is of a kind for its place; functions with side effects are not."""
    import torch
    from pytorch_lightning import Callback
    from pytorch_lightning.loggers import Logger

    from zoo.optim import LRSchedule, OptimizerConfig
    from zoo.tasks.contract import Task, TaskData

    if target.startswith("torch.nn."):
        return _is_a(found, torch.nn.Module) and target.count(".") == 2
    if target.startswith("torch.optim."):
        return _is_a(found, torch.optim.Optimizer) and target.count(".") == 2
    if target.startswith("zoo.attention."):
        return inspect.isclass(found)
    if target.startswith("torchvision.models."):
        return True
    makes_data, is_part = _makes(found, TaskData), _is_a(found, torch.nn.Module) or dataclasses.is_dataclass(found)
    match place:
        case "model" if is_root:
            return _is_a(found, Task)
        case "model":
            return is_part or _is_a(found, OptimizerConfig, LRSchedule)
        case "data":
            return makes_data or (not is_root and inspect.isclass(found))
        case "attention" | "gate":
            return is_part
        case "loss" | "decoder":
            return _is_a(found, torch.nn.Module)
        case "optimisation" | "optimizer" | "scheduler":
            return _is_a(found, OptimizerConfig, LRSchedule)
        case "callbacks":
            return _is_a(found, Callback)
        case "logger":
            return _makes(found, Logger)
    return makes_data or _makes(found, Logger) or inspect.isclass(found)


def _makes(found: Callable[..., Any], kind: type) -> bool:
    """Whether `found` is a class of that kind, or a function whose signature returns one."""
    return _is_a(get_hints(found).get("return") if inspect.isfunction(found) else found, kind)


def _is_a(found: Any, *kinds: type) -> bool:
    return inspect.isclass(found) and issubclass(found, kinds)


def _iter_targets(node: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields every node with a target, outer ones first; refuses a configuration of absurd size or depth."""
    waiting, seen = [(path, node, 0)], 0
    while waiting:
        where, each, depth = waiting.pop()
        seen += 1
        if depth > _DEEPEST or seen > _MOST_NODES:
            raise ConfigError(f"{path}: more than {_DEEPEST} levels or {_MOST_NODES:,} values is no configuration")
        if isinstance(each, Mapping):
            if "_target_" in each:
                yield where, each
            children = [(f"{where}.{key}", value, depth + 1) for key, value in each.items()]
        elif isinstance(each, list | tuple):
            children = [(f"{where}.{number}", value, depth + 1) for number, value in enumerate(each)]
        elif isinstance(each, str) and "${" in each:  # Hydra would look it up, also in the environment
            raise ConfigError(f"{where}={each!r} is not resolved; a value without '${{' belongs there")
        else:
            continue
        waiting += reversed(children)


def _find_root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
