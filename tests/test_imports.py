"""How the modules of the project depend on each other: in one direction, and by public names."""

from __future__ import annotations

import ast
import graphlib
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zoo.lazy_exports import read_homes

ROOT = Path(__file__).resolve().parents[1]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.glob("zoo/**/*.py"))
}
ELSEWHERE = ("tests/attention", "tests/maps", "tests/tasks")
"""Tests that may look into a module: of numbers that decide how work is cut into pieces, and the like."""
USERS = [
    path
    for path in sorted([*FILES.values(), *ROOT.glob("tests/**/*.py"), *ROOT.glob("results/*.py")])
    if not path.relative_to(ROOT).as_posix().startswith(ELSEWHERE)
]


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name) of every import, also inside functions, but for those that the type checker alone sees."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", each.name) for each in node.names)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            waiting += ast.iter_child_nodes(node)


def modules_of(tree: ast.AST) -> set[str]:
    """The modules of this project that a module imports."""
    named = {f"{module}.{name}" if f"{module}.{name}" in FILES else module for module, name in imported(tree)}
    return named & set(FILES)


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports inside functions save time at the start; they never break a cycle."""
    sorter = graphlib.TopologicalSorter({name: modules_of(parsed(path)) for name, path in FILES.items()})
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("path", USERS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_module_uses_what_is_private_to_another(path: Path) -> None:
    tree = parsed(path)
    private = {f"{module}.{name}" for module, name in imported(tree) if is_private(name) and module.startswith("zoo")}
    modules = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if f"{node.module}.{name.name}" in FILES
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            private |= {f"{node.value.id}.{node.attr}"} if is_private(node.attr) else set()
    assert not private


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("package", [name for name, path in FILES.items() if path.name == "__init__.py"])
def test_no_export_has_the_name_of_a_module(package: str) -> None:
    """Whoever imports the module first would get it in place of what is exported."""
    found = importlib.import_module(package)
    exported = set(found.__all__) if hasattr(found, "__getattr__") else set()  # others bind their names at once
    modules = {name.rpartition(".")[2] for name in FILES if name.rpartition(".")[0] == package}
    assert not exported & modules


@pytest.mark.parametrize(
    ("options", "most"),
    [
        (["model=gat", "data.nodes=240", "data.classes=3", "data.tags=4", "data.trusted=2", "data.distractors=2"], 108),
        # slow tier: a second process, of which the first says the same
        pytest.param(["model=sasrec", "data.users=40", "data.items=20"], 151, marks=pytest.mark.slow),
    ],
    ids=["gat", "sasrec"],
)
def test_a_run_imports_what_it_uses_alone(options: list[str], most: int, tmp_path: Path) -> None:
    """Packages import lazily what they export; maps, other mechanisms and fine-tuning are not loaded by a plain run."""
    code = (
        "import sys; from zoo.cli.main import main; code = main(sys.argv[1:])\n"
        "print(*(name for name, each in sys.modules.items() if f'{name}.'.startswith('zoo.')), file=sys.stderr)\n"
        "sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "train", *options, "data.max_epochs=1", "logger=csv", "run_dir=run"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.splitlines()[-1].split())
    assert "zoo.training.run" in loaded
    assert not loaded & {
        "zoo.maps.export",
        "zoo.checkpoints.finetune",
        "zoo.attention.penalties",
        "zoo.training.preflight",
    }
    assert len(loaded) <= most, sorted(loaded)


@pytest.mark.parametrize("package", ["zoo.attention", "zoo.maps"])
def test_what_a_package_imports_lazily_is_what_it_exports(package: str) -> None:
    found = importlib.import_module(package)
    assert set(found.__all__) == set(read_homes(FILES[package]))
    for name in found.__all__:
        assert getattr(found, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = found.Nothing
