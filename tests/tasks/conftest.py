"""Here so that `run_cases` can be imported by the tests of every domain, which share a run of each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from run_cases import DOMAINS


@pytest.fixture(scope="session")
def trained_on(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`trained_on(domain)` -> the directory of a run with everything random in it. Tests write nothing there."""
    from zoo.cli.main import main

    @functools.cache
    def run(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert main(["train", *DOMAINS[name].tiny, *DOMAINS[name].random, "run_dir=run"]) == 0
        return folder / "run"

    return run


@pytest.fixture
def best(trained_on: Callable[[str], Path]) -> Callable[[str], Path]:
    """`best(domain)` -> the checkpoint of such a run."""
    return lambda name: trained_on(name) / "checkpoints" / "best.ckpt"
