"""What `zoo list attention` says of every mechanism of the core, read from its source without importing torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CORE = Path(__file__).parent / "attention"

KINDS = {
    "scores": ("Scores", "Attend(score=...)", ("scores", "decoder_scores", "target.ActivationUnit")),
    "supports": ("Who may attend to whom", "Attend(restrict=...)", ("windows", "local")),
    "normalisers": (
        "Normalisers",
        "Attend(normalise=...)",
        ("normalisers", "sparsemax", "hard", "monotonic", "local.Gaussian", "target.Unnormalised"),
    ),
    "positions": ("Positions of a site", "MultiHead(position=...)", ("positions", "rotary")),
    "embeddings": ("Positions added to inputs", "before the first layer", ("embeddings",)),
    "dropout": ("Dropout of weights", "Attend(dropout=...)", ("dropout",)),
    "kernels": ("Kernel and low-rank attention", "in place of Attend", ("linear", "performer", "linformer")),
    "pooling": ("Pooling, pairs of inputs", "modules of their own", ("pooling", "coattention", "target")),
    "mixers": ("Mixers for comparison", "in place of MultiHead", ("mixers", "attention_free", "state_space")),
    "gates": ("Gates", "after a convolution", ("gates",)),
    "penalties": ("Penalties on weights", "penalty.NAME=WEIGHT", ("penalties",)),
}
"""A kind: its title, where its mechanisms go, and their files; `file.Class` for one of another kind."""
_WIDEST_COST = 40


@dataclass(frozen=True)
class Mechanism:
    """What the docstring of a class says of it.

    Args:
        does: The first sentence: the formula.
        paper: The first that is cited.
        cost: Of its line `Cost: ...`.
        weights: Of its line `Weights: ...`, where it is not simply observed.
        works_on: The supports that it is limited to; empty where it serves all.
    """

    name: str
    kind: str
    does: str
    paper: str
    cost: str
    weights: str
    works_on: tuple[str, ...]


def mechanisms() -> Iterator[Mechanism]:
    """Every public mechanism, in the order of kinds, files and classes."""
    public = _exported()
    apart = {each for _, _, files in KINDS.values() for each in files if "." in each}
    for kind, (_, _, files) in KINDS.items():
        for entry in files:
            file, _, alone = entry.partition(".")
            for node in ast.parse((CORE / f"{file}.py").read_text(encoding="utf-8")).body:
                if not isinstance(node, ast.ClassDef) or node.name not in public:
                    continue
                belongs = node.name == alone if alone else f"{file}.{node.name}" not in apart
                said = ast.get_docstring(node) or ""
                if belongs and fact("Cost", said):
                    yield _mechanism(node, kind, said)


def fact(name: str, docstring: str) -> str:
    """What follows `Name:` on a line of a docstring."""
    found = re.search(rf"^\s*{name}: (.+?)\.?$", docstring, flags=re.MULTILINE)
    return found[1] if found else ""


def _mechanism(node: ast.ClassDef, kind: str, said: str) -> Mechanism:
    return Mechanism(
        name=node.name,
        kind=kind,
        does=said.splitlines()[0].rstrip("."),
        paper=_paper(said),
        cost=fact("Cost", said),
        weights=fact("Weights", said),
        works_on=_works_on(node),
    )


def _paper(said: str) -> str:
    """Who and when, of the first citation: `Hu et al. 2018`."""
    name = r"[A-Z][\w'-]+"
    found = re.search(rf"{name}(?: & {name}| et al\.|(?:, {name})+ & {name})? \d{{4}}", said)
    return found[0] if found else ""


def _works_on(node: ast.ClassDef) -> tuple[str, ...]:
    for each in node.body:
        if isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "supports" for t in each.targets):
            return tuple(name.id for name in ast.walk(each.value) if isinstance(name, ast.Name))
    return ()


def _exported() -> set[str]:
    tree = ast.parse((CORE / "__init__.py").read_text(encoding="utf-8"))
    (names,) = (each.value for each in tree.body if isinstance(each, ast.Assign))
    return set(ast.literal_eval(names))


def table() -> Iterator[str]:
    """For the terminal: a block for each kind."""
    found = list(mechanisms())
    width = max(len(each.name) for each in found)
    cost = min(_WIDEST_COST, max(len(each.cost) for each in found))
    for kind, (title, place, _) in KINDS.items():
        yield ""
        yield f"{title}: {place}"
        for each in (one for one in found if one.kind == kind):
            notes = [each.does]
            if each.works_on:
                notes.append(f"on {' or '.join(each.works_on)} alone")
            if each.weights:
                notes.append(f"weights: {each.weights}")
            if each.paper and each.paper not in each.does:
                notes.append(each.paper)
            yield f"  {each.name:<{width}}  {each.cost:<{cost}}  {'; '.join(notes)}"
