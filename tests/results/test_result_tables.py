"""What README and docs say was measured is what the committed runs measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = sorted((ROOT / "results").glob("*/*.json"))


def test_tables_are_made_from_results() -> None:
    command = [sys.executable, str(ROOT / "results" / "tables.py"), "--check"]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("path", RUNS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_result_says_how_it_was_measured(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["command"].startswith("python ")
    assert len(found["commit"]) == 40, "measure from a clean checkout"
    assert found.get("seed", int(path.stem)) == int(path.stem)
