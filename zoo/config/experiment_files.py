"""Experiment files: those under conf/experiment/ and the user's own, `experiment=mine.yaml`.

A user's own file is replaced by equivalent overrides. Its keys are then checked as if they had been typed, the command
line takes precedence over it, and a checkpoint records its content:

    defaults:                 # or: model: gat
      - override /model: gat
    optimizer:
      lr: 0.01
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from omegaconf._utils import get_yaml_loader

from zoo.config import plugins
from zoo.config.groups import GROUPS
from zoo.config.legacy_names import iter_keys, suggest_key
from zoo.errors import ConfigError, ProblemsError, quote_value, warn
from zoo.io import make_no_alias_loader, read_text

_SUFFIXES = (".yaml", ".yml")
_MAX_KEYS = 10_000
_KEY = re.compile(r"[\w/.@*-]+")
_AMBIGUOUS_NUMBER = re.compile(r"[-+]?(0[0-7_]*[0-7][0-7_]*|[\d_]+(:[0-5]?\d)+(\.[\d_]*)?)")
"""Numbers to base 8 or 60 in YAML."""
_Loader = make_no_alias_loader(get_yaml_loader())
"""OmegaConf's loader, so that a file reads the same here and under conf/. PyYAML's own takes 1e-3 for text."""


class Recipe(NamedTuple):
    """An experiment together with those that it is based on.

    Args:
        files: Their paths and contents, the base first.
        choices: The choices of groups that they make: group -> name.
    """

    files: tuple[tuple[Path, yaml.MappingNode], ...]
    choices: dict[str, str]


def is_user_file(name: str) -> bool:
    """Returns whether the name of an experiment is the path of a file."""
    return name.strip("'\"").endswith(_SUFFIXES)


def to_overrides(
    path: Path,
    typed_choices: Sequence[str],
    compose_tree: Callable[[tuple[str, ...]], Mapping[str, Any]],
) -> list[str]:
    """Returns the overrides that a file stands for. An error names every unknown key with its line.

    Args:
        path: The file.
        typed_choices: The choices of the command line, which take precedence.
        compose_tree: Choices -> the composed tree, unresolved.
    """
    root = _parse(path)
    choices = dict(_iter_choices(root, path))
    all_choices = {**choices, **dict(choice.split("=", 1) for choice in typed_choices)}
    if "model" not in all_choices and "experiment" not in all_choices:
        raise ConfigError(f"{path}: it does not say which model: write a line 'model: NAME' at its top")
    tree = compose_tree(tuple(f"{group}={name}" for group, name in all_choices.items()))
    problems: list[str] = []
    values = list(_iter_values(root, tree, path, problems))
    if len(problems) > 1:
        raise ProblemsError(problems)
    if problems:
        raise ConfigError(problems[0])
    return [*(f"{group}={name}" for group, name in choices.items()), *values]


def read_recipe(path: Path) -> Recipe:
    """Reads the file of an experiment, and its bases."""
    experiments = plugins.find_choices("experiment")
    files: list[tuple[Path, yaml.MappingNode]] = []
    choices: dict[str, str] = {}
    base: Path | None = path
    while base is not None and base not in (file for file, _ in files):
        root = _parse(base)
        files.insert(0, (base, root))
        own_choices = dict(_iter_choices(root, base))
        base = experiments.get(own_choices.pop("experiment", ""))
        choices = {**own_choices, **choices}
    return Recipe(tuple(files), choices)


def drop_foreign_options(
    recipe: Recipe,
    own_tree: Mapping[str, Any],
    new_tree: Mapping[str, Any],
    replaced_groups: Collection[str],
) -> tuple[list[str], list[str]]:
    """Adapts a recipe to other choices, such as other data: options that only its own choices have are dropped.

    So is what it builds instead of a part of its own choice (`_target_`). A key that neither tree has is refused.

    Args:
        recipe: The recipe.
        own_tree: The tree of the recipe's own choices.
        new_tree: The tree of the choices that are made instead.
        replaced_groups: The groups in which another choice is made.

    Returns:
        The overrides that the recipe stands for with the other choices, and the keys of the dropped options.
    """
    own_keys, new_keys, merged_tree = set(iter_keys(own_tree)), set(iter_keys(new_tree)), _merge(own_tree, new_tree)
    options: dict[str, str] = {group: name for group, name in recipe.choices.items() if group not in replaced_groups}
    dropped_keys: dict[str, None] = {}
    for path, root in recipe.files:
        problems: list[str] = []
        for override in _iter_values(root, merged_tree, path, problems):
            key, _, value = override.partition("=")
            is_foreign = key not in new_keys and key in own_keys
            if key.split(".")[0] in replaced_groups and (is_foreign or key.endswith("._target_")):
                dropped_keys[key] = None
            else:
                options[key] = value
        if problems:
            raise ProblemsError(problems) if len(problems) > 1 else ConfigError(problems[0])
    return [f"{key}={value}" for key, value in options.items()], list(dropped_keys)


def _merge(base: Any, update: Any) -> Any:
    """Returns both trees as one; a key with options in only one of them has these."""
    if not isinstance(base, Mapping) or not isinstance(update, Mapping):
        return base if isinstance(base, Mapping) else update
    return {**base, **{key: _merge(base.get(key), value) for key, value in update.items()}}


def _parse(path: Path) -> yaml.MappingNode:
    try:
        root = yaml.compose(read_text(path), _Loader)
    except FileNotFoundError as error:
        raise ConfigError(f"{path} cannot be read: there is no such file") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}, line {mark.line + 1}" if mark is not None else str(path)
        raise ConfigError(f"{place}: this is not YAML: {getattr(error, 'problem', None) or error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path} is nested too deeply: that is no experiment") from error
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}: an experiment is made of lines such as 'optimizer.lr: 0.01'")
    _check_nodes(root, path)
    return root


def _check_nodes(root: yaml.Node, path: Path) -> None:
    """Refuses keys that are no names, and warns of numbers that YAML reads otherwise than people do."""
    queue = [root]
    while queue:
        node = queue.pop()
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    kind = "list" if isinstance(key, yaml.SequenceNode) else "mapping"
                    raise ConfigError(f"{_format_place(path, key)}: a key is the name of an option, not a {kind}")
                queue.append(value)
        elif isinstance(node, yaml.SequenceNode):
            queue += node.value
        elif node.tag.endswith((":int", ":float")) and _AMBIGUOUS_NUMBER.fullmatch(node.value):
            number = _to_plain(node, path)
            reason = "a leading 0 means base 8 in YAML, and a colon base 60"
            place = _format_place(path, node)
            warn(f"{place}: {node.value} is read as {number} ({reason}); write {number} if that is meant")


def _iter_choices(root: yaml.MappingNode, path: Path) -> Iterator[tuple[str, str]]:
    for key, value in root.value:
        if key.value == "defaults":
            if not isinstance(value, yaml.SequenceNode):
                raise ConfigError(
                    f"{_format_place(path, value)}: 'defaults' is a list of lines such as '- override /model: gat'"
                )
            for entry in value.value:
                if isinstance(entry, yaml.SequenceNode):
                    raise ConfigError(f"{_format_place(path, entry)}: write such a line as '- override /model: gat'")
                if isinstance(entry, yaml.ScalarNode) and entry.value != "_self_":  # the experiment that is its base
                    yield "experiment", entry.value
                for name, choice in entry.value if isinstance(entry, yaml.MappingNode) else ():
                    group = name.value.removeprefix("override ").strip().lstrip("/")
                    if group not in GROUPS or not isinstance(choice, yaml.ScalarNode):
                        raise ConfigError(f"{_format_place(path, name)}: there is no group {group!r} to choose from")
                    yield group, choice.value
        elif key.value in GROUPS and isinstance(value, yaml.ScalarNode):
            yield key.value, value.value


def _iter_values(
    root: yaml.MappingNode,
    tree: Mapping[str, Any],
    path: Path,
    problems: list[str],
) -> Iterator[str]:
    known_keys = set(iter_keys(tree))
    queue: list[tuple[str, Any, Any]] = [("", root, tree)]
    lines: dict[str, int] = {}
    count = 0
    while queue:
        prefix, node, subtree = queue.pop(0)
        for key, value in node.value:
            count += 1
            name = f"{prefix}{key.value}"
            if count > _MAX_KEYS:
                raise ConfigError(f"{path} has more than {_MAX_KEYS:,} keys: that is no experiment")
            if not prefix and (key.value == "defaults" or (key.value in GROUPS and isinstance(value, yaml.ScalarNode))):
                continue
            if name not in known_keys:
                problems.append(
                    f"{_format_place(path, key)}: there is no option {name!r}. {suggest_key(name, known_keys)}"
                )
                continue
            child = _get_nested(subtree, str(key.value))
            if isinstance(value, yaml.MappingNode) and isinstance(child, Mapping) and child:
                queue.append((f"{name}.", value, child))
            elif name in lines:
                problems.append(f"{_format_place(path, key)}: {name!r} stands in line {lines[name]} already")
            else:
                lines[name] = key.start_mark.line + 1
                yield f"{name}={_format_value(_to_plain(value, path), _format_place(path, value))}"


def _get_nested(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def _to_plain(node: yaml.Node, path: Path) -> Any:
    try:
        return _Loader("").construct_document(node)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise ConfigError(f"{_format_place(path, node)}: this is not a plain value") from error


def _format_value(value: Any, place: str, depth: int = 0) -> str:
    """Returns a value as overrides write it."""
    if depth > 10:
        raise ConfigError(f"{place}: a value is nested more than ten levels deep")
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{','.join(_format_value(member, place, depth + 1) for member in value)}]"
    if isinstance(value, dict):
        if not all(_KEY.fullmatch(str(key)) for key in value):
            raise ConfigError(f"{place}: a key here may have letters, digits and / . _ - * in it, and no others")
        return f"{{{','.join(f'{key}:{_format_value(member, place, depth + 1)}' for key, member in value.items())}}}"
    if isinstance(value, str):
        return quote_value(value)
    raise ConfigError(f"{place}: {value!r} is not a text, a number, a list or a mapping; put it in quotes")


def _format_place(path: Path, node: yaml.Node) -> str:
    return f"{path}, line {node.start_mark.line + 1}"
