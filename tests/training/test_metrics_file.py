"""metrics.csv: every figure that was logged is there, whatever columns come up and whenever it is written."""

from __future__ import annotations

import csv
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.errors import ConfigError
from zoo.training.loggers import MetricsFile, wandb

NAMES = ("train/loss", "val/loss", "val/accuracy", "odd, name")
numbers = st.floats(allow_nan=False, width=32)
entries = st.tuples(st.integers(0, 2), st.dictionaries(st.sampled_from(NAMES), numbers, min_size=1), st.booleans())


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert all(None not in row and None not in row.values() for row in found)  # as many cells as columns
    return found


@given(st.lists(st.lists(entries, max_size=12), min_size=1, max_size=3), st.integers(1, 4))
def test_nothing_is_lost(sessions: list[list[tuple[int, dict[str, float], bool]]], flush_rows: int) -> None:
    """Sessions are runs that were resumed; `further` is how far the step moved since the entry before."""
    with tempfile.TemporaryDirectory() as folder:
        logged: list[tuple[int, str, float]] = []
        step = 0
        for session in sessions:
            file = MetricsFile(run_dir=Path(folder), flush_rows=flush_rows)
            for further, metrics, saves in session:
                step += further
                file.log_metrics({"epoch": step // 2, **metrics}, step)
                logged += [(step, name, value) for name, value in metrics.items()]
                if saves:
                    file.save()
            file.finalize("success")
        if not (Path(folder) / "metrics.csv").exists():
            assert not logged
            return
        rows = read(Path(folder) / "metrics.csv")
        assert [int(row["step"]) for row in rows] == sorted(int(row["step"]) for row in rows)
        assert all(int(row["epoch"]) == int(row["step"]) // 2 for row in rows)
        found = {(int(row["step"]), name, float(row[name])) for row in rows for name in NAMES if row.get(name)}
        last = {(step, name): value for step, name, value in logged}  # of two values of one row the later one stays
        for (at, name), value in last.items():
            near = [each for where, what, each in found if (where, what) == (at, name)]
            assert any(each == pytest.approx(value, rel=1e-7) for each in near)
        values = {(at, name) for at, name, _ in logged}
        assert {(at, name) for at, name, _ in found} == values
        assert [path.name for path in Path(folder).iterdir()] == ["metrics.csv"]


def test_columns_keep_their_order_and_rows_stay(tmp_path: Path) -> None:
    file = MetricsFile(run_dir=tmp_path)
    for step, metrics in enumerate([{"b": 1.0}, {"a": 2.5}, {"c": 1e-9, "b": 123456.78}]):
        file.log_metrics({"epoch": 0, **metrics}, step)
        file.save()
    text = (tmp_path / "metrics.csv").read_text()
    assert text == "step,epoch,b,a,c\n0,0,1,,\n1,0,,2.5,\n2,0,123456.78,,1e-09\n"


def test_training_and_validation_of_a_step_share_a_row(tmp_path: Path) -> None:
    file = MetricsFile(run_dir=tmp_path)
    file.log_metrics({"epoch": 0, "train/loss": 1.0}, 9)
    file.log_metrics({"epoch": 0, "val/loss": 2.0}, 9)
    file.save()
    assert read(tmp_path / "metrics.csv") == [{"step": "9", "epoch": "0", "train/loss": "1", "val/loss": "2"}]


def test_a_failure_while_columns_are_added_leaves_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = MetricsFile(run_dir=tmp_path)
    file.log_metrics({"a": 1.0}, 0)
    file.save()
    before = (tmp_path / "metrics.csv").read_text()
    file.log_metrics({"b": 1.0}, 1)
    monkeypatch.setattr(csv.DictWriter, "writerows", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        file.save()
    assert (tmp_path / "metrics.csv").read_text() == before


@pytest.mark.skipif(find_spec("wandb") is not None, reason="wandb is installed here")
def test_wandb_without_its_package(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'pip install "attention-zoo\[wandb\]"'):
        wandb(run_dir=tmp_path)
