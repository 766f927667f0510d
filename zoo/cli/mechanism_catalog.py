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

CORE = Path(__file__).parents[1] / "attention"
_WIDEST_COST = 40


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
    """Every folder and module of the core that defines public mechanisms, in alphabetical order."""
    public = _read_exports()
    for place in sorted(CORE.iterdir()):
        files = sorted(place.glob("*.py")) if place.is_dir() else [place] if place.suffix == ".py" else []
        found = tuple(each for file in files for each in _mechanisms_in(file, place.stem, public))
        if found:
            said = ast.get_docstring(_parse(place / "__init__.py" if place.is_dir() else place)) or ""
            yield Kind(said.partition(":")[0], get_docstring_field("Goes", said), found)


def mechanisms() -> Iterator[Mechanism]:
    """Every public mechanism."""
    for kind in kinds():
        yield from kind.mechanisms


def _mechanisms_in(file: Path, kind: str, public: set[str]) -> Iterator[Mechanism]:
    if not get_docstring_field(
        "Cost", file.read_text(encoding="utf-8")
    ):  # parsing all files would take most of the time
        return
    for node in _parse(file).body:
        if isinstance(node, ast.ClassDef) and node.name in public:
            said = ast.get_docstring(node) or ""
            if get_docstring_field("Cost", said):
                yield _mechanism(node, kind, said)


def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def get_docstring_field(name: str, docstring: str) -> str:
    """The text after `Name:` on a line of a docstring."""
    found = re.search(rf"^\s*{name}: (.+?)\.?$", docstring, flags=re.MULTILINE)
    return found[1] if found else ""


def _mechanism(node: ast.ClassDef, kind: str, said: str) -> Mechanism:
    return Mechanism(
        name=node.name,
        kind=kind,
        does=said.splitlines()[0].rstrip("."),
        paper=_paper(said),
        cost=get_docstring_field("Cost", said),
        weights=get_docstring_field("Weights", said),
        works_on=_works_on(node),
    )


def _paper(said: str) -> str:
    """Authors and year of the first citation, such as `Hu et al. 2018`."""
    name = r"[A-Z][\w'-]+"
    found = re.search(rf"{name}(?: & {name}| et al\.|(?:, {name})+ & {name})? \d{{4}}", said)
    return found[0] if found else ""


def _works_on(node: ast.ClassDef) -> tuple[str, ...]:
    """The `layouts` of the traits of a class."""
    for each in node.body:
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Call) and _is_name(each.targets[0], "traits"):
            layouts = [option.value for option in each.value.keywords if option.arg == "layouts"]
            return tuple(name.id for layout in layouts for name in ast.walk(layout) if isinstance(name, ast.Name))
    return ()


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _read_exports() -> set[str]:
    (names,) = (each.value for each in _parse(CORE / "__init__.py").body if isinstance(each, ast.Assign))
    return set(ast.literal_eval(names))


def table() -> Iterator[str]:
    """The lines of a table for the terminal, with a block for each kind."""
    found = list(kinds())
    width = max(len(each.name) for kind in found for each in kind.mechanisms)
    cost = min(_WIDEST_COST, max(len(each.cost) for kind in found for each in kind.mechanisms))
    for kind in found:
        yield ""
        yield f"{kind.title}: {kind.goes}"
        for each in kind.mechanisms:
            notes = [each.does]
            if each.works_on:
                notes.append(f"on {' or '.join(each.works_on)} only")
            if each.weights:
                notes.append(f"weights: {each.weights}")
            if each.paper and each.paper not in each.does:
                notes.append(each.paper)
            yield f"  {each.name:<{width}}  {each.cost:<{cost}}  {'; '.join(notes)}"
