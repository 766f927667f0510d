"""A search by Optuna: what is searched, what is refused, and that hopeless trials are stopped early."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from zoo import processes
from zoo.errors import ConfigError
from zoo.sweeps import search
from zoo.training.callbacks import pruning

TRAIN_PY = Path(__file__).resolve().parents[2] / "train.py"
SEARCH = ["train", "-m", "hydra/sweeper=optuna", "model=gat", "optimizer.lr=tag(log,interval(0.0001,0.1))"]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def trials_done(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Trials that are over at once; the figure is better the nearer the rate is to 0.01."""
    rates: list[float] = []

    def run(arguments: list[str], **_: Any) -> int:
        given = dict(each.partition("=")[::2] for each in arguments if "=" in each)
        rates.append(float(given["optimizer.lr"]))
        if len(rates) == 3:
            return 130
        found = {"val/accuracy": 1 - abs(rates[-1] - 0.01), "test/accuracy": 0.5}
        Path(given["run_dir"].strip("'")).mkdir(parents=True)
        Path(given["run_dir"].strip("'"), "metrics.json").write_text(json.dumps(found))
        return 0

    monkeypatch.setattr(processes, "run", run)
    return rates


def test_what_is_searched() -> None:
    distributions = pytest.importorskip("optuna").distributions
    given = ["model=gat", "a=int(interval(1,5))", "b=tag(log,interval(0.1,1.0))", "c=range(2,9,2)", "d=x,y"]
    given += ["e=choice(1,2)", "f=interval(1,5)"]
    fixed, space = search.parse_space(given)
    assert fixed == ["model=gat"]
    assert space == {
        "a": distributions.IntDistribution(1, 5),
        "b": distributions.FloatDistribution(0.1, 1.0, log=True),
        "c": distributions.IntDistribution(2, 8, step=2),
        "d": distributions.CategoricalDistribution(["x", "y"]),
        "e": distributions.CategoricalDistribution(["1", "2"]),
        "f": distributions.FloatDistribution(1.0, 5.0),
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hydra.sweeper.trials": "3"}, "Did you mean 'hydra.sweeper.n_trials'"),
        ({"hydra.sweeper.n_trials": "few"}, "n_trials=few: write a whole number"),
        ({"hydra.sweeper.direction": "up"}, "maximize or minimize"),
        ({"hydra.sweeper.metric": "test/accuracy"}, "the test set has no say"),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        search.parse_settings(given)


def test_a_search_goes_on_where_it_was_stopped(cli: Any, trials_done: list[float]) -> None:
    pytest.importorskip("optuna")
    command = [*SEARCH, "hydra.sweeper.n_trials=6"]
    assert cli(*command).code == 130
    done = cli(*command)
    assert done.code == 0
    assert len(trials_done) == 7
    assert trials_done[2] == trials_done[3]  # that trial again, with the same options
    (folder,) = Path("runs/sweeps").iterdir()
    rows = table(folder / "summary.csv")
    assert [row["state"] for row in rows] == ["complete"] * 6
    best = max(rows, key=lambda row: float(row["val/accuracy"]))
    assert f"optimizer.lr={best['optimizer.lr']}" in done.out
    assert [job["status"] for job in yaml.safe_load((folder / "sweep.yaml").read_text())["jobs"]] == ["finished"] * 6


def test_a_trial_that_reports_little_is_pruned(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run reports to the journal of the search; the fifth is the first that the pruner compares."""
    pytest.importorskip("optuna")
    stops: list[bool] = []

    def run(arguments: list[str], *, env: dict[str, str]) -> int:
        given = dict(each.partition("=")[::2] for each in arguments if "=" in each)
        value = 0.9 if len(stops) < 4 else 0.2
        monkeypatch.setenv(pruning.TRIAL, env[pruning.TRIAL])
        callback = pruning.PruningCallback()
        monkeypatch.setattr(pruning, "get_logged_metrics", lambda trainer: {"val/accuracy": value})
        trainers = (SimpleNamespace(current_epoch=epoch) for epoch in (0, 1, 1, *range(2, 20)))
        stops.append(any(callback._is_hopeless(trainer) for trainer in trainers))
        Path(given["run_dir"].strip("'")).mkdir(parents=True)
        found = {"val/accuracy": value, "test/accuracy": 0.5}
        Path(given["run_dir"].strip("'"), "metrics.json").write_text(json.dumps(found))
        return 0

    monkeypatch.setattr(processes, "run", run)
    done = cli(*SEARCH, "hydra.sweeper.n_trials=6")
    assert done.code == 0, done.err
    assert stops == [False] * 4 + [True] * 2
    (folder,) = Path("runs/sweeps").iterdir()
    assert [row["state"] for row in table(folder / "summary.csv")] == ["complete"] * 4 + ["pruned"] * 2
    assert "4 complete, 2 stopped early" in done.out


def test_nothing_to_search(cli: Any) -> None:
    pytest.importorskip("optuna")
    done = cli("train", "-m", "hydra/sweeper=optuna", "model=gat")
    assert done.code == 2
    assert "nothing to search" in done.err


@pytest.mark.slow
def test_hopeless_trials_are_stopped_early(tmp_path: Path, tiny: list[str]) -> None:
    """Rates so small that nothing is learnt, after four trials that the pruner waits for."""
    pytest.importorskip("optuna")
    options = [*tiny, "data.max_epochs=40", "seed=choice(0,1,2,3,4,5,6,7)", "optimizer.lr=choice(0.05,1e-9)"]
    command = [sys.executable, str(TRAIN_PY), "-m", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=10", *options]
    done = subprocess.run(command, cwd=tmp_path, env=processes.make_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs" / "sweeps").iterdir()
    rows = table(folder / "summary.csv")
    stopped = [row for row in rows if row["state"] == "pruned"]
    assert stopped
    for row in stopped:
        assert json.loads(Path(row["run"], "metrics.json").read_text())["epochs"] < 40
    assert os.listdir(tmp_path) == ["runs"]
