"""The packages stand in layers: a module imports those of its own layer and of lower ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = (
    "errors types validation lazy_exports io locks console memory",
    "processes distributed",
    "attention",
    "data text",
    "nn",
    "decoding maps",
    "optim",
    "tasks",
    "config",
    "checkpoints",
    "extend training",
    "sweeps",
    "cli",
    "__init__ __main__",
)
"""The lowest first."""
RANKS = {name: rank for rank, layer in enumerate(LAYERS) for name in layer.split()}
PACKAGES = sorted(path.stem for path in (ROOT / "zoo").glob("[!_]*") if path.suffix == ".py" or any(path.rglob("*.py")))


def imports(path: Path) -> Iterator[str]:
    """Yields the second part of the name of each module of zoo that a file imports, also inside functions."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{each.name}" if node.module == "zoo" else node.module or "" for each in node.names]
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            waiting += ast.iter_child_nodes(node)
        yield from (name.split(".")[1] for name in names if name.startswith("zoo."))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_lower_ones_alone(package: str) -> None:
    place = ROOT / "zoo" / package
    for path in sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
        higher = {name for name in imports(path) if name in RANKS and RANKS[name] > RANKS[package]}
        assert not higher, f"{path.relative_to(ROOT)} imports what stands above zoo.{package}"


def test_kernels_of_processors_are_used_by_way_of_the_core() -> None:
    """Who computes something beside attention imports `zoo.attention.functional`, which chooses the kernel."""
    for path in (ROOT / "zoo").rglob("*.py"):
        if (ROOT / "zoo" / "attention") not in path.parents:
            assert "zoo.attention.kernels.cpu" not in path.read_text(encoding="utf-8"), path.relative_to(ROOT)


def test_an_outside_package_imports_zoo_extend_alone() -> None:
    for path in (ROOT / "tests" / "outside_package").rglob("*.py"):
        assert set(imports(path)) <= {"extend"}, path
