"""Runs of every domain as a user starts them: continued, by two processes, as a sweep, and used afterwards."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_cases import DOMAINS, command, figures, finished, same_run, stopped_and_continued, two_equal_one

from zoo import maps
from zoo.config import plugins

Trained = Callable[[str], Path]


def test_every_domain_is_named() -> None:
    models = "".join(path.read_text() for path in (plugins.CONF / "model").rglob("*.yaml"))
    assert set(re.findall(r"^  _target_: zoo\.tasks\.(\w+)\.", models, re.MULTILINE)) == set(DOMAINS)


STOPS = [(name, after) for name, each in DOMAINS.items() for after in each.stops]
ONE_STOP = [(name, each.stops[number % 2 - 1]) for number, (name, each) in enumerate(DOMAINS.items())]
"""Of each domain: its last one and its first one in turn; the others are slow."""


@pytest.mark.parametrize(
    ("name", "after"), [pytest.param(*each, marks=[] if each in ONE_STOP else pytest.mark.slow) for each in STOPS]
)
def test_an_interrupted_run_is_continued_exactly(trained_on: Trained, cli: Any, name: str, after: int) -> None:
    tiny, random, *_ = DOMAINS[name]
    assert same_run(stopped_and_continued(cli, [*tiny, *random], after), trained_on(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", DOMAINS)
def test_two_processes_give_the_figures_of_one(cli: Any, tmp_path: Path, name: str) -> None:
    two_equal_one(cli, [*DOMAINS[name].tiny, *DOMAINS[name].exact], tmp_path)
    for table in (tmp_path / "one").glob("test_confusion.csv"):
        assert (tmp_path / "two" / table.name).read_text() == table.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", DOMAINS)
def test_a_sweep_over_seeds(tmp_path: Path, name: str) -> None:
    finished(command("-m", *DOMAINS[name].tiny, "seed=0,1", "paths.runs=runs"), tmp_path)
    (summary,) = tmp_path.rglob("summary.csv")
    with summary.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["n"] == "2"


@pytest.mark.slow
@pytest.mark.parametrize("name", DOMAINS)
def test_a_run_in_mixed_precision(cli: Any, name: str) -> None:
    done = cli("train", *DOMAINS[name].tiny, "trainer.precision=bf16-mixed", "data.max_epochs=1", "run_dir=run")
    assert done.code == 0, done.err
    assert all(math.isfinite(value) for key, value in figures(Path("run")).items() if key.endswith("/loss"))


@pytest.mark.parametrize("name", DOMAINS)
def test_the_checkpoint_alone_is_enough(trained_on: Trained, cli: Any, name: str) -> None:
    """Copied elsewhere, it gives the figures of its run, and predictions."""
    shutil.copy(trained_on(name) / "checkpoints" / "best.ckpt", "best.ckpt")
    assert cli("evaluate", "best.ckpt", "--out", "found.json").code == 0
    found = {key: value for key, value in json.loads(Path("found.json").read_text()).items() if "/" in key}
    expected = figures(trained_on(name))
    assert found
    assert found == {key: expected[key] for key in found}
    assert cli("predict", "best.ckpt", "--out", "out.csv").code == 0
    with open("out.csv", newline="") as file:
        assert list(csv.DictReader(file))


@pytest.mark.parametrize("name", DOMAINS)
def test_maps_of_a_checkpoint_can_be_read(trained_on: Trained, cli: Any, name: str) -> None:
    best = trained_on(name) / "checkpoints" / "best.ckpt"
    done = cli("maps", best, "--out", "maps", "--pictures", 1)
    assert done.code == 0, done.err
    assert len(maps.load("maps").to_pandas())
