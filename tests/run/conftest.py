"""A tiny run that many tests look at, and the data that it is made of."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from zoo.cli import main

DATA = ["data.nodes=240", "data.classes=3", "data.tags=4", "data.trusted=2", "data.distractors=2", "data.width=12"]
TINY = ["model=gat", *DATA, "model.net.dim=4", "model.net.heads=2", "data.max_epochs=4", "logger=csv"]


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """The overrides of a run that takes a fraction of a second."""
    return list(TINY)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of such a run. Tests read it and write nothing there."""
    folder = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", *TINY, "run_dir=run"]) == 0
    return folder / "run"


@pytest.fixture
def dense(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`dense_cases`, as if it were a domain: `zoo.tasks.dense_cases`."""
    name = "zoo.tasks.dense_cases"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "dense_cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
