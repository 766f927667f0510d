"""Lists every option of a model with its value and meaning, for `python train.py model=gat --help`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.config import compose, plugins
from zoo.config.groups import GROUPS

_LINE = re.compile(r"^(?P<indent> *)(?P<key>[\w/]+):(?P<value>[^#]*)(#\s*(?P<comment>.*))?$")
_HIDDEN = ("_target_", "_partial_", "defaults")


def describe_options(overrides: Sequence[str]) -> list[str]:
    """Returns one line for each option, without an import that takes long."""
    compose.check_overrides(overrides)
    tree, choices = compose.compose_unresolved(overrides)
    for group in compose.find_unused_groups(tree["model"]):  # options of other domains
        tree.pop(group, None)
        choices.pop(group, None)
    comments = _read_comments(plugins.CONF / "train.yaml")
    for group, name in choices.items():
        if (path := plugins.find_choices(group).get(name)) is not None:
            is_global = "@package _global_" in path.read_text(encoding="utf-8").split("\n", 1)[0]
            for file in plugins.iter_files(path):
                prefix = "" if is_global else f"{group}."
                comments |= {f"{prefix}{key}": text for key, text in _read_comments(file).items()}
    choice_overrides = [f"{group}={name}" for group, name in choices.items() if name and group in GROUPS]
    lines = [" ".join(choice_overrides), ""]
    pairs = [(f"{key}={_format_value(value)}", comments.get(key, "")) for key, value in _iter_leaves(tree)]
    width = min(44, max(len(pair) for pair, _ in pairs))
    return lines + [f"  {pair:<{width}}  {text}".rstrip() for pair, text in pairs]


def _iter_leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, str) and value.startswith("${") and prefix and "." not in value:
            continue  # another group's options, shown there
        if isinstance(value, Mapping) and value:
            yield from _iter_leaves(value, f"{prefix}{key}.")
        elif key not in _HIDDEN:
            yield f"{prefix}{key}", value


def _format_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _read_comments(path: Path) -> dict[str, str]:
    """Returns the comment behind each key."""
    comments: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        indent = len(match["indent"])
        above = [(depth, key) for depth, key in above if depth < indent] + [(indent, match["key"])]
        if match["comment"]:
            comments[".".join(key for _, key in above)] = match["comment"]
    return comments
