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
from zoo.errors import ConfigError, MissingPackageError, ZooError, did_you_mean
from zoo.types import Fraction, NonNegativeFloat, PositiveFloat, Probability, explain_mismatch, get_hints

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
_DOTTED_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+", re.ASCII)
_MAX_DEPTH, _MAX_NODES = 32, 100_000
_RESERVED = {"_target_", "_partial_"}


def build(node: Mapping[str, Any], path: str, **injected: Any) -> Any:
    """Builds the object that a node describes.

    Args:
        node: `_target_`, its options, and `_partial_: true` where a factory is wanted.
        path: Where the node stands in the configuration, for messages.
        injected: Options that are not in the configuration, such as sizes of the data.
    """
    check(node, path, injected=set(injected))
    from hydra.utils import instantiate

    try:
        # `injected` is not passed through Hydra, which would build every `_target_` inside it.
        factory = instantiate({**node, "_partial_": True}, _convert_="all")
        return factory if node.get("_partial_") else factory(**injected)
    except Exception as error:
        cause = _find_root_cause(error)
        if isinstance(cause, ZooError):
            raise cause from error
        if isinstance(cause, ValueError | TypeError):
            raise ConfigError(f"{path}: {cause}") from error
        raise


def check(node: Mapping[str, Any], path: str, injected: set[str] | None = None) -> None:
    """Refuses targets that may not be built, options that they do not have, and required options without a value."""
    for problem in iter_errors(node, path, injected):
        raise problem


def iter_errors(
    node: Mapping[str, Any], path: str, injected: set[str] | None = None, exclude: Collection[Any] = ()
) -> Iterator[ConfigError]:
    """Yields everything that `check` would refuse, except in parts that equal one of `exclude`."""
    try:
        targets = list(_iter_targets(node, path))
    except ConfigError as error:
        yield error
        return
    resolved: list[tuple[str, Mapping[str, Any], Any]] = []
    for location, part in targets:  # targets that may not be built come first
        try:
            resolved.append((location, part, resolve_target(part["_target_"], location, is_root=location == path)))
        except ConfigError as error:
            yield error
    for location, part, target in resolved:
        if part not in exclude:
            yield from _iter_option_errors(part, location, target, (injected or set()) if location == path else set())


def _iter_option_errors(
    node: Mapping[str, Any], location: str, target: Any, injected: set[str]
) -> Iterator[ConfigError]:
    signature, hints = inspect.signature(target), get_option_types(target)
    options = {n for n, p in signature.parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    for key, value in node.items():
        if key not in options | _RESERVED:
            yield ConfigError(f"{location} has no option {key!r}. {did_you_mean(str(key), options)}")
        elif value == "???":
            yield ConfigError(f"{location}.{key} must be given: {location}.{key}=VALUE")
        elif key in hints and (message := explain_mismatch(value, hints[key], f"{location}.{key}")):
            yield ConfigError(message)
    required = {n for n, p in signature.parameters.items() if p.default is p.empty and n in options}
    missing = required - set(node) - injected
    if missing and not node.get("_partial_"):
        yield ConfigError(f"{location} needs {', '.join(sorted(missing))}")


def check_installed(config: Mapping[str, Any]) -> None:
    """Refuses a configuration with parts of a package that is not installed."""
    for group in GROUPS_BY_NODE:
        for location, part in _iter_targets(config.get(group), group):
            if (hint := plugins.explain_missing(part["_target_"])) is not None:
                raise MissingPackageError(f"{location} is {part['_target_']!r}. {hint}")


def get_option_types(target: Any) -> dict[str, Any]:
    """Returns the type of each option, with the range of its numbers."""
    return {**get_hints(target), **(_OPTIMIZERS if target.__module__.startswith("torch.optim.") else {})}


def resolve_target(target: Any, location: str, *, is_root: bool = False) -> Any:
    """Returns the class or function of an allowed dotted name.

    Args:
        target: The name in the configuration.
        location: Its place, whose first word decides what may be built there.
        is_root: Whether it is the object of that place itself, instead of one of its parts.
    """
    group_name = location.partition(".")[0]
    group = GROUPS_BY_NODE.get(group_name, _ANYWHERE)
    plugin = plugins.find_package(target) if group.is_open and isinstance(target, str) else None
    if not isinstance(target, str) or not _DOTTED_NAME.fullmatch(target) or "__" in target:
        raise _make_refusal(target, location, group)
    if plugin is None and not target.startswith(group.allowed_prefixes):
        raise _make_refusal(target, location, group)
    if (successor := find_successor(target)) is not None:
        raise ConfigError(f"{location}: {target} is now {successor}")
    module, _, name = target.rpartition(".")
    if module == "torchvision.models" and name not in _BACKBONES:
        raise ConfigError(f"{location}: {target!r} may not be built; of torchvision, {', '.join(_BACKBONES)} may be")
    package, member = _import_member(module, name, location, plugin)
    # only names that a package exports, and those that torch's modules define
    exported = getattr(package, "__all__", ()) if plugin or module.startswith("zoo.") else (name,)
    origin = f"{getattr(member, '__module__', '') or ''}."
    if (
        name not in exported
        or not callable(member)
        or not origin.startswith(f"{module}.")
        or member.__qualname__ != name
    ):
        owner = "this project's parts" if plugin is None else f"the parts that {plugin.distribution} exports"
        raise ConfigError(f"{location}: {target!r} may not be built; it is not one of {owner}")
    if not _is_allowed(member, target, group_name, is_root):
        raise ConfigError(f"{location}: {target!r} may not be built; it does not belong there")
    return member


def resolve_class(target: Any, group_name: str) -> type[Any]:
    """Returns the class of the objects that a target makes."""
    member = resolve_target(target, group_name, is_root=True)
    kind: type[Any] = get_hints(member)["return"] if inspect.isfunction(member) else member
    return kind


def _make_refusal(target: Any, location: str, group: Group) -> ConfigError:
    plugin_prefixes = [f"{package.name}." for package in plugins.find_packages()] if group.is_open else []
    allowed = ", ".join(f"{prefix}*" for prefix in (*group.allowed_prefixes, *plugin_prefixes))
    refusal = f"{location}: {target!r} may not be built"
    hint = plugins.explain_missing(target) if group.is_open else None
    if hint is not None:
        return MissingPackageError(f"{refusal}. {hint}")
    return ConfigError(f"{refusal}; what may be is {allowed}")


def _import_member(module: str, name: str, location: str, plugin: plugins.Package | None) -> tuple[Any, Any]:
    """Returns a package and its member. The import of a package that is not ours may raise anything."""
    failures = (ImportError, AttributeError) if plugin is None else (Exception, SystemExit)
    try:
        package = importlib.import_module(module)
        return package, getattr(package, name)
    except failures as error:
        owner = "" if plugin is None else f" (of the installed package {plugin.distribution})"
        raise ConfigError(f"{location}: {f'{module}.{name}'!r}{owner} cannot be imported: {error}") from error


def _is_allowed(member: Any, target: str, group_name: str, is_root: bool) -> bool:
    """Returns whether an object with an allowed name is of a kind for its place.

    Functions with side effects are not.
    """
    import torch
    from pytorch_lightning import Callback
    from pytorch_lightning.loggers import Logger

    from zoo.optim import LRSchedule, OptimizerConfig
    from zoo.tasks.base import Task, TaskData

    if target.startswith("torch.nn."):
        return _is_a(member, torch.nn.Module) and target.count(".") == 2
    if target.startswith("torch.optim."):
        return _is_a(member, torch.optim.Optimizer) and target.count(".") == 2
    if target.startswith("zoo.attention."):
        return inspect.isclass(member)
    if target.startswith("torchvision.models."):
        return True
    makes_data, is_part = _makes(member, TaskData), _is_a(member, torch.nn.Module) or dataclasses.is_dataclass(member)
    match group_name:
        case "model" if is_root:
            return _is_a(member, Task)
        case "model":
            return is_part or _is_a(member, OptimizerConfig, LRSchedule)
        case "data":
            return makes_data or (not is_root and inspect.isclass(member))
        case "attention" | "gate":
            return is_part
        case "loss" | "decoder":
            return _is_a(member, torch.nn.Module)
        case "optimization" | "optimizer" | "scheduler":
            return _is_a(member, OptimizerConfig, LRSchedule)
        case "callbacks":
            return _is_a(member, Callback)
        case "logger":
            return _makes(member, Logger)
    return makes_data or _makes(member, Logger) or inspect.isclass(member)


def _makes(target: Callable[..., Any], kind: type) -> bool:
    """Returns whether `target` is a class of that kind, or a function whose signature returns one."""
    return _is_a(get_hints(target).get("return") if inspect.isfunction(target) else target, kind)


def _is_a(target: Any, *kinds: type) -> bool:
    return inspect.isclass(target) and issubclass(target, kinds)


def _iter_targets(node: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields every node with a target, outer ones first; refuses a configuration of absurd size or depth."""
    queue, count = [(path, node, 0)], 0
    while queue:
        location, entry, depth = queue.pop()
        count += 1
        if depth > _MAX_DEPTH or count > _MAX_NODES:
            raise ConfigError(f"{path}: more than {_MAX_DEPTH} levels or {_MAX_NODES:,} values is no configuration")
        if isinstance(entry, Mapping):
            if "_target_" in entry:
                yield location, entry
            children = [(f"{location}.{key}", value, depth + 1) for key, value in entry.items()]
        elif isinstance(entry, list | tuple):
            children = [(f"{location}.{number}", value, depth + 1) for number, value in enumerate(entry)]
        elif isinstance(entry, str) and "${" in entry:  # Hydra would look it up, also in the environment
            raise ConfigError(f"{location}={entry!r} is not resolved; a value without '${{' belongs there")
        else:
            continue
        queue += reversed(children)


def _find_root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
