"""From configuration to objects: what a `_target_` may be, and which options it has."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from zoo.attention.ranges import NotNegative, Positive, Rate, Share
from zoo.composing.fitting import hints_of, misfit
from zoo.errors import ConfigError, ZooError, nearest

ALLOWED = (
    "zoo.attention.",
    "zoo.tasks.",
    "zoo.training.",
    "torch.nn.",
    "torch.optim.",
    "torchvision.models.",
)
"""Where anything may come from that is built: a configuration inside a checkpoint comes from a stranger, and any
callable would run code. `_PLACES` says what of it belongs where."""

_OPTIMISATION = ("zoo.training.", "torch.optim.")
_PLACES = {
    "model": ("zoo.tasks.", "zoo.attention.", "torch.nn.", "torchvision.models.", *_OPTIMISATION),
    "data": ("zoo.tasks.",),
    "attention": ("zoo.attention.",),
    "gate": ("zoo.attention.", "torch.nn."),
    "loss": ("zoo.tasks.",),
    "optimisation": _OPTIMISATION,
    "optimizer": _OPTIMISATION,
    "scheduler": _OPTIMISATION,
    "callbacks": ("zoo.training.",),
    "logger": ("zoo.training.",),
}
_TRAINING_PARTS = {
    **dict.fromkeys(("model", "optimisation", "optimizer", "scheduler"), "optimisation"),
    "callbacks": "callbacks.",
    "logger": "loggers",
}
"""Where in `zoo.training` the parts of a place are defined."""
_BACKBONES = ("resnet18", "resnet34", "resnet50", "resnet101", "vgg16", "vit_b_16", "convnext_tiny", "efficientnet_b0")
_OPTIMIZERS = {
    "lr": NotNegative,
    "weight_decay": NotNegative,
    "momentum": Rate,
    "dampening": Share,
    "betas": Sequence[Rate],
    "eps": Positive,
}
"""Ranges of options whose signatures are not ours."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+", re.ASCII)
_DEEPEST, _MOST_NODES = 32, 100_000
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
    for problem in problems(node, path, given):
        raise problem


def problems(
    node: Mapping[str, Any], path: str, given: set[str] | None = None, but: Collection[Any] = ()
) -> Iterator[ConfigError]:
    """All that `check` would refuse, one after the other, except in parts that equal one of `but`."""
    try:
        targets = list(_targets(node, path))
    except ConfigError as error:
        yield error
        return
    found: list[tuple[str, Mapping[str, Any], Any]] = []
    for where, each in targets:  # what may not be built at all comes first
        try:
            found.append((where, each, resolve(each["_target_"], where, is_root=where == path)))
        except ConfigError as error:
            yield error
    for where, each, target in found:
        if each not in but:
            yield from _problems_of(each, where, target, (given or set()) if where == path else set())


def _problems_of(each: Mapping[str, Any], where: str, target: Any, given: set[str]) -> Iterator[ConfigError]:
    signature, hints = inspect.signature(target), options_of(target)
    known = {n for n, p in signature.parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    for key, value in each.items():
        if key not in known | _RESERVED:
            yield ConfigError(f"{where} has no option {key!r}. {nearest(str(key), known)}")
        elif value == "???":
            yield ConfigError(f"{where}.{key} must be given: {where}.{key}=VALUE")
        elif key in hints and (said := misfit(value, hints[key], f"{where}.{key}")):
            yield ConfigError(said)
    needed = {n for n, p in signature.parameters.items() if p.default is p.empty and n in known}
    missing = needed - set(each) - given
    if missing and not each.get("_partial_"):
        yield ConfigError(f"{where} needs {', '.join(sorted(missing))}")


def options_of(found: Any) -> dict[str, Any]:
    """The type of each option, with the range of its numbers."""
    return {**hints_of(found), **(_OPTIMIZERS if found.__module__.startswith("torch.optim.") else {})}


def resolve(target: Any, where: str, *, is_root: bool = False) -> Any:
    """The class or function of an allowed dotted name.

    Args:
        target: What the configuration names.
        where: Its place, whose first word decides what belongs there.
        is_root: Whether it is what is built there, and not a part of that.
    """
    place = where.partition(".")[0]
    allowed = _PLACES.get(place, ALLOWED)
    refusal = f"{where}: {target!r} may not be built; what may be is {', '.join(a + '*' for a in allowed)}"
    if not isinstance(target, str) or not target.startswith(allowed) or not _NAME.fullmatch(target) or "__" in target:
        raise ConfigError(refusal)
    module, _, name = target.rpartition(".")
    if module == "torchvision.models" and name not in _BACKBONES:
        raise ConfigError(f"{where}: {target!r} may not be built; of torchvision, {', '.join(_BACKBONES)} may be")
    try:
        package = importlib.import_module(module)
        found = getattr(package, name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{where}: {target!r} cannot be imported: {error}") from error
    # public names alone: those that a package of ours exports, and those of torch that are defined there
    public = getattr(package, "__all__", ()) if module.startswith("zoo.") else (name,)
    home = f"{getattr(found, '__module__', '') or ''}."
    if name not in public or not callable(found) or not home.startswith(f"{module}.") or found.__qualname__ != name:
        raise ConfigError(f"{where}: {target!r} may not be built; it is not one of this project's parts")
    if not _belongs(found, target, place, is_root):
        raise ConfigError(f"{where}: {target!r} may not be built; it does not belong there")
    return found


def _belongs(found: Any, target: str, place: str, is_root: bool) -> bool:
    """Whether a thing of an allowed name is of the kind that its place takes: functions with other effects are not."""
    import torch

    if target.startswith("torch.nn."):
        return _is_a(found, torch.nn.Module) and target.count(".") == 2
    if target.startswith("torch.optim."):
        return _is_a(found, torch.optim.Optimizer) and target.count(".") == 2
    if target.startswith("zoo.attention."):
        return inspect.isclass(found)
    if target.startswith("zoo.training."):
        return bool(found.__module__.startswith(f"zoo.training.{_TRAINING_PARTS.get(place, '')}"))
    if not target.startswith("zoo.tasks."):
        return True
    from zoo.tasks.contract import Task, TaskData

    if place == "model":
        return _is_a(found, Task) if is_root else _is_a(found, torch.nn.Module) or dataclasses.is_dataclass(found)
    if place == "loss":
        return _is_a(found, torch.nn.Module)
    if place == "data":
        return _is_a(found, TaskData) or _is_a(_returned(found), TaskData) or (not is_root and inspect.isclass(found))
    return inspect.isclass(found) or _is_a(_returned(found), TaskData)


def _is_a(found: Any, kind: type) -> bool:
    return inspect.isclass(found) and issubclass(found, kind)


def _returned(found: Callable[..., Any]) -> Any:
    """What a function says that it returns."""
    return hints_of(found).get("return") if inspect.isfunction(found) else None


def _targets(node: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every node with a target, from the outside in; a configuration that nobody could have written is refused."""
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


def _root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
