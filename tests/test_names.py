"""Functions are named by verbs: no bare participles (`kept`), and no prepositions (`of_rows`)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DONE = sorted(
    str(path.relative_to(ROOT).with_suffix(""))
    for path in (ROOT / "zoo").glob("[!_]*")
    if path.name not in ("conf", "data", "decoding", "maps", "tasks", "text", "__pycache__")
)
"""The packages whose names have been brought into this form."""
NOUNS = {"embedding", "padding", "encoding", "mapping", "setting", "seed"}
"""Nouns of the field that end like participles."""
KEPT = {"to", "permitted"}
"""The name of torch for moving to a device; the mask of a support, which some supports compute."""
IRREGULAR = (
    "held kept sent found made given begun shown said told left seen known drawn written spoken chosen taken built "
    "bound meant lost met paid thought gone thrown grown worn torn"
)
PREPOSITIONS = (
    "of at by on in to from for with beside between within without across along among around behind before after under "
    "over through into onto upon than as is"
)
VERBAL = {"is", "to", "from", "as", "on"}
"""First words that others may follow: `is_locked`, `to_overrides`, `on_fit_start`."""


def fault(name: str) -> str | None:
    """Returns what a function's name is instead of a verb."""
    first, *others = name.strip("_").split("_")
    if first in PREPOSITIONS.split() and not (first in VERBAL and others):
        return "a preposition"
    is_participle = first in IRREGULAR.split() or re.fullmatch(r"[a-z]{2,}(ed|ing|wn)", first) is not None
    return "a participle" if not others and first not in NOUNS and is_participle else None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kept", "a participle"),
        ("_resolved", "a participle"),
        ("of_rows", "a preposition"),
        ("is_locked", None),
        ("to_overrides", None),
        ("padding", None),
        ("resolve_run_dir", None),
    ],
)
def test_the_fault_of_a_name(name: str, said: str | None) -> None:
    assert fault(name) == said


@pytest.mark.parametrize("package", DONE)
def test_functions_are_verbs(package: str) -> None:
    place = ROOT / package
    faults = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} is {said}"
        for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if not node.name.startswith("__") and node.name not in KEPT and (said := fault(node.name))
    ]
    assert not faults
