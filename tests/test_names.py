"""Names say what they hold.

Functions are named by verbs: no bare participles (`kept`), and no prepositions (`of_rows`). Locals are nouns (`labels`,
not `found`), and docstrings of functions start with a verb in the third person.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DONE = sorted(
    str(path.relative_to(ROOT).with_suffix(""))
    for path in (ROOT / "zoo").glob("[!_]*")
    if path.name not in ("conf", "__pycache__")
)
"""The packages whose functions have been brought into this form."""
IN_WORDS = sorted(
    str(path.relative_to(ROOT))
    for pattern in (
        *("*.py", "attention/**/*.py", "cli/*.py", "config/*.py", "data/*.py", "decoding/*.py", "text/**/*.py"),
        *("checkpoints/*.py", "sweeps/*.py", "training/*.py", "training/callbacks/*.py"),
    )
    for path in (ROOT / "zoo").glob(pattern)
)
"""The files whose locals and docstrings have been brought into this form."""
EMPTY = {"asked", "each", "found", "given", "kept", "made", "said", "seen", "there"}
"""Words that say nothing of what a variable holds."""
NOUNS = {"embed", "embedding", "padding", "encoding", "mapping", "pointing", "setting", "seed", "speed", "unknown"}
"""Verbs and nouns of the field that end like participles; "unknown" is the token, "pointing" the measure."""
KEPT = {"to", "permitted", "published"}
"""The name of torch for moving to a device; the mask of a support, which some supports compute; a data set that YAML
files name."""
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
    ("name", "problem"),
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
def test_the_fault_of_a_name(name: str, problem: str | None) -> None:
    assert fault(name) == problem


@pytest.mark.parametrize("package", DONE)
def test_functions_are_verbs(package: str) -> None:
    place = ROOT / package
    faults = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} is {problem}"
        for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if not node.name.startswith("__") and node.name not in KEPT and (problem := fault(node.name))
    ]
    assert not faults


def iter_functions(path: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", IN_WORDS)
def test_locals_name_what_they_hold(path: str) -> None:
    faults = set()
    for function in iter_functions(path):
        for node in ast.walk(function):
            is_local = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if is_local else node.arg if isinstance(node, ast.arg) else ""
            if name in EMPTY:
                faults.add(f"{path}:{node.lineno}: {name}")
    assert not faults


@pytest.mark.parametrize("path", IN_WORDS)
def test_docstrings_of_functions_start_with_a_verb(path: str) -> None:
    faults = []
    for function in iter_functions(path):
        is_property = any(ast.unparse(decorator).endswith("property") for decorator in function.decorator_list)
        first = (ast.get_docstring(function) or "").partition(" ")[0]
        if first in ("A", "An", "The", "Whether") and not is_property:
            faults.append(f"{path}:{function.lineno}: {function.name}: {first} ...")
    assert not faults
