"""A tiny run that many tests look at, and the data that it is made of."""

from __future__ import annotations

from pathlib import Path

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
