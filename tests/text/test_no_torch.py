"""Texts are read where there is no torch: in workers, in tools; and nothing is loaded before it is used."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import zoo.text

FILES = sorted(Path(zoo.text.__file__).parent.glob("**/*.py"))
LIBRARIES = {
    "tokenizers",
    "sentencex",
    "sacrebleu",
    "jiwer",
    "rapidfuzz",
    "regex",
    "numpy",
    "jaxtyping",
    "scipy",
    "sklearn",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_imported(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported <= {"zoo", *LIBRARIES, *sys.stdlib_module_names}


def test_nothing_of_it_loads_torch() -> None:
    code = (
        "import json, sys, zoo.text\n"
        "before = set(sys.modules)\n"
        "found = [getattr(zoo.text, name) for name in zoo.text.__all__]\n"
        "print(json.dumps([sorted(before), sorted(sys.modules)]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(zoo.text.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
    before, after = ({name.split(".")[0] for name in names} for names in json.loads(done.stdout))
    assert not before & LIBRARIES
    assert not after & {"torch", "pytorch_lightning", "hydra", "tokenizers", "sacrebleu", "jiwer", "sentencex"}
