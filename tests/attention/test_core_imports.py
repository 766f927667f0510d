"""The core stands alone: torch, the standard library, jaxtyping and what is below it; its tests check its shapes."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

import zoo.attention
import zoo.lazy_exports
import zoo.types

FILES = sorted(Path(zoo.attention.__file__).parent.glob("**/*.py"))
BELOW = {"zoo.types": Path(zoo.types.__file__), "zoo.lazy_exports": Path(zoo.lazy_exports.__file__)}
"""What the core imports of this project."""


@pytest.mark.parametrize("path", [*FILES, *BELOW.values()], ids=lambda path: path.name)
def test_the_core_imports_nothing_else(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module or "")
    allowed = {"torch", "jaxtyping", *sys.stdlib_module_names}
    for name in imported:
        assert name.split(".")[0] in allowed or f"{name}.".startswith("zoo.attention.") or name in BELOW, name


def test_shapes_are_checked_while_tests_run() -> None:
    support, weights = zoo.attention.DenseSupport(), torch.ones(1, 2, 3, 4)
    assert support.combine(weights, torch.ones(1, 2, 4, 5)).shape == (1, 2, 3, 5)
    with pytest.raises(TypeCheckError, match="value"):
        support.combine(weights, torch.ones(1, 1, 4, 5))  # which torch would broadcast


def test_importing_the_core_loads_no_framework() -> None:
    code = (
        "import json, sys; from zoo.attention import *\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(zoo.attention.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no warning either
    loaded = set(json.loads(done.stdout))
    assert "torch" in loaded
    assert not loaded & {
        "pytorch_lightning",
        "lightning",
        "hydra",
        "omegaconf",
        "torch_geometric",
        "pandas",
        "beartype",
    }
