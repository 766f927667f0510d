"""Describes what can be chosen: mechanisms and other groups for `zoo list`, the options of a model for `--help`.

All is read from files, without importing torch.

A kind of mechanism is a folder of the core, or a module beside the folders. The docstring of the folder or module gives
the kind's title (what stands before the colon in its first line) and says where its mechanisms go (`Goes: ...`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.config import compose, plugins
from zoo.config.groups import GROUPS, LISTED
from zoo.errors import ConfigError, did_you_mean
from zoo.lazy_exports import read_homes

CORE = Path(__file__).parents[1] / "attention"
_MAX_COST_WIDTH = 40
_LINE = re.compile(r"^(?P<indent> *)(?P<key>[\w/]+):(?P<value>[^#]*)(#\s*(?P<comment>.*))?$")
_HIDDEN = ("_target_", "_partial_", "defaults")


@dataclass(frozen=True)
class Mechanism:
    """A mechanism as the docstring of its class describes it.

    Args:
        does: The first sentence, with the formula.
        paper: The first paper that it cites.
        cost: The text of its line `Cost: ...`.
        weights: The text of its line `Weights: ...`, if it has one.
        works_on: The supports that it is limited to; empty if it works on all.
    """

    name: str
    kind: str
    does: str
    paper: str
    cost: str
    weights: str
    works_on: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """Mechanisms that take the same place in a model."""

    title: str
    goes: str
    mechanisms: tuple[Mechanism, ...]


def kinds() -> Iterator[Kind]:
    """Yields every folder and module of the core that defines public mechanisms, in alphabetical order."""
    public = set(read_homes(CORE / "__init__.py"))
    for path in sorted(CORE.iterdir()):
        files = sorted(path.glob("*.py")) if path.is_dir() else [path] if path.suffix == ".py" else []
        members = tuple(mechanism for file in files for mechanism in _iter_mechanisms(file, path.stem, public))
        if members:
            described = path / "__init__.py" if path.is_dir() else path
            docstring = ast.get_docstring(ast.parse(described.read_text(encoding="utf-8"))) or ""
            yield Kind(docstring.partition(":")[0], get_docstring_field("Goes", docstring), members)


def mechanisms() -> Iterator[Mechanism]:
    """Yields every public mechanism."""
    for kind in kinds():
        yield from kind.mechanisms


def _iter_mechanisms(file: Path, kind: str, public: set[str]) -> Iterator[Mechanism]:
    text = file.read_text(encoding="utf-8")
    if not get_docstring_field("Cost", text):  # parsing all files would take most of the time
        return
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name in public:
            docstring = ast.get_docstring(node) or ""
            if get_docstring_field("Cost", docstring):
                yield _make_mechanism(node, kind, docstring)


def get_docstring_field(name: str, docstring: str) -> str:
    """Returns the text after `Name:` on a line of a docstring."""
    match = re.search(rf"^\s*{name}: (.+?)\.?$", docstring, flags=re.MULTILINE)
    return match[1] if match else ""


def _make_mechanism(node: ast.ClassDef, kind: str, docstring: str) -> Mechanism:
    return Mechanism(
        name=node.name,
        kind=kind,
        does=docstring.splitlines()[0].rstrip("."),
        paper=_find_paper(docstring),
        cost=get_docstring_field("Cost", docstring),
        weights=get_docstring_field("Weights", docstring),
        works_on=_get_layouts(node),
    )


def _find_paper(docstring: str) -> str:
    """Returns authors and year of the first citation, such as `Hu et al. 2018`."""
    name = r"[A-Z][\w'-]+"
    match = re.search(rf"{name}(?: & {name}| et al\.|(?:, {name})+ & {name})? \d{{4}}", docstring)
    return match[0] if match else ""


def _get_layouts(node: ast.ClassDef) -> tuple[str, ...]:
    """Returns the `layouts` of the traits of a class."""
    for statement in node.body:
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.Call)
            and ast.unparse(statement.targets[0]) == "traits"
        ):
            layouts = [option.value for option in statement.value.keywords if option.arg == "layouts"]
            return tuple(name.id for layout in layouts for name in ast.walk(layout) if isinstance(name, ast.Name))
    return ()


def table() -> Iterator[str]:
    """Yields the lines of a table for the terminal, with a block for each kind."""
    all_kinds = list(kinds())
    width = max(len(mechanism.name) for kind in all_kinds for mechanism in kind.mechanisms)
    cost = min(_MAX_COST_WIDTH, max(len(mechanism.cost) for kind in all_kinds for mechanism in kind.mechanisms))
    for kind in all_kinds:
        yield ""
        yield f"{kind.title}: {kind.goes}"
        for mechanism in kind.mechanisms:
            notes = [mechanism.does]
            if mechanism.works_on:
                notes.append(f"on {' or '.join(mechanism.works_on)} only")
            if mechanism.weights:
                notes.append(f"weights: {mechanism.weights}")
            if mechanism.paper and mechanism.paper not in mechanism.does:
                notes.append(mechanism.paper)
            yield f"  {mechanism.name:<{width}}  {mechanism.cost:<{cost}}  {'; '.join(notes)}"


def print_choices(chosen_group: str | None) -> None:
    """Prints the choices of a group with what they are; of all groups if none is given."""
    if chosen_group is not None and chosen_group not in LISTED:
        raise ConfigError(f"there is no group {chosen_group!r}. {did_you_mean(chosen_group, LISTED)}")
    for group in (chosen_group,) if chosen_group else LISTED:
        choices = compose.describe_choices(group)
        width = max(map(len, choices), default=0)
        print(f"{group}=")
        for name, sentence in choices.items():
            print(f"  {name:<{width}}  {sentence}")
        if group == "attention":
            print("\n".join(table()))


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
