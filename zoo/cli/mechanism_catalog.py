"""Describes every mechanism of the core for `zoo list attention`, from its source and without importing torch.

A kind of mechanism is a folder of the core, or a module beside the folders. The docstring of the folder or module gives
the kind's title (what stands before the colon in its first line) and says where its mechanisms go (`Goes: ...`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zoo.lazy_exports import read_homes

CORE = Path(__file__).parents[1] / "attention"
_MAX_COST_WIDTH = 40


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
    public = _read_exports()
    for path in sorted(CORE.iterdir()):
        files = sorted(path.glob("*.py")) if path.is_dir() else [path] if path.suffix == ".py" else []
        members = tuple(mechanism for file in files for mechanism in _iter_mechanisms(file, path.stem, public))
        if members:
            docstring = ast.get_docstring(_parse(path / "__init__.py" if path.is_dir() else path)) or ""
            yield Kind(docstring.partition(":")[0], get_docstring_field("Goes", docstring), members)


def mechanisms() -> Iterator[Mechanism]:
    """Yields every public mechanism."""
    for kind in kinds():
        yield from kind.mechanisms


def _iter_mechanisms(file: Path, kind: str, public: set[str]) -> Iterator[Mechanism]:
    if not get_docstring_field(
        "Cost", file.read_text(encoding="utf-8")
    ):  # parsing all files would take most of the time
        return
    for node in _parse(file).body:
        if isinstance(node, ast.ClassDef) and node.name in public:
            docstring = ast.get_docstring(node) or ""
            if get_docstring_field("Cost", docstring):
                yield _make_mechanism(node, kind, docstring)


def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


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
            and _is_name(statement.targets[0], "traits")
        ):
            layouts = [option.value for option in statement.value.keywords if option.arg == "layouts"]
            return tuple(name.id for layout in layouts for name in ast.walk(layout) if isinstance(name, ast.Name))
    return ()


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _read_exports() -> set[str]:
    return set(read_homes(CORE / "__init__.py"))


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
