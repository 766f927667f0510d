"""What README and docs say was measured is what the committed runs measured."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.attention.cpu import PROCESSOR
from zoo.config import compose, instantiate

ROOT = Path(__file__).parents[2]
RUNS = sorted((ROOT / "results").glob("*/*.json"))


def test_tables_are_made_from_results() -> None:
    command = [sys.executable, str(ROOT / "results" / "tables.py"), "--check"]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


def test_pages_show_the_metrics_that_a_run_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "results")
    for run in importlib.import_module("printed").PRINTED.values():
        model = compose.compose([f"model={run.experiment.split('-')[0]}"])["model"]["_target_"]
        assert run.headline == tuple(instantiate.resolve_class(model, "model").headline), run.experiment


def test_a_benchmark_says_for_which_processor_it_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("benchmarks", "results"):
        monkeypatch.syspath_prepend(ROOT / folder)
    filing, measured = importlib.import_module("filing"), importlib.import_module("measured")
    filing.file({"threads": 1}, tmp_path / "0.json")
    found = json.loads((tmp_path / "0.json").read_text(encoding="utf-8"))
    assert found["processor"]["name"] == PROCESSOR.name
    assert found["processor"]["flags"] == PROCESSOR.flags
    assert found["processor"]["threads"] >= 1
    assert PROCESSOR.name in capsys.readouterr().out
    assert measured.on_processor(found) == f", on {PROCESSOR.name} ({', '.join(PROCESSOR.flags)})"
    assert measured.on_processor({}) == ""


@pytest.mark.parametrize("path", RUNS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_result_says_how_it_was_measured(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["command"].startswith("python ")
    assert len(found["commit"]) == 40, "measure from a clean checkout"
    assert found.get("seed", int(path.stem)) == int(path.stem)
