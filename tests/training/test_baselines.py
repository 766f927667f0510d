"""Simple answers: measured on the splits and by the metrics of a run, and named where a model is no better."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from zoo.tasks.baselines import Texts, compare_with_texts, fit_logistic_regression, measure_labels, predict_majority
from zoo.text import BLEU
from zoo.training import baselines

SPLITS = np.array([0, 0, 0, 1, 1, 2, 2, -1])
LABELS = np.array([1, 1, 0, 1, 0, 0, -1, 0])


def test_the_majority_is_that_of_training() -> None:
    found = predict_majority(LABELS, SPLITS, 3).measure()
    assert found["val/accuracy"] == 0.5
    assert found["test/accuracy"] == 0.0  # the unknown label is left out
    assert found["val/f1_macro"] == pytest.approx((2 / 3 + 0) / 2)


def test_logistic_regression_reads_training_labels_alone() -> None:
    features = np.array([[1.0], [1.0], [-1.0], [1.0], [-1.0], [-1.0], [5.0], [9.0]])
    found = fit_logistic_regression("x", lambda: features, LABELS, SPLITS, 2, is_cheap=True).measure()
    assert (found["val/accuracy"], found["test/accuracy"]) == (1.0, 1.0)
    held_out = np.where((SPLITS > 0) & (LABELS >= 0), 1 - LABELS, LABELS)
    other = fit_logistic_regression("x", lambda: features, held_out, SPLITS, 2, is_cheap=True).measure()
    assert other["val/accuracy"] == 0.0
    assert measure_labels(LABELS, LABELS, SPLITS, 2)["val/f1_macro"] == 1.0


def test_texts_are_repeated_and_copied() -> None:
    parts = {
        "train": Texts([["a b c d"], ["a b c d"], ["e"]], ["x", "y", "z"]),
        "val": Texts([["a b c d"]], ["a b c d"]),
        "test": Texts([["e f g h"]], ["e f g h"]),
    }
    frequent, copied = compare_with_texts(parts.__getitem__, [(BLEU(), ["bleu"])])
    assert (frequent.name, copied.name) == ("the most frequent text", "a copy of the source")
    assert frequent.measure() == {"val/bleu": pytest.approx(100.0), "test/bleu": 0.0}
    assert copied.measure() == {"val/bleu": pytest.approx(100.0), "test/bleu": pytest.approx(100.0)}
    assert not frequent.is_cheap


def rows(count: int = 60) -> str:
    words = {"good": "fine lovely", "bad": "awful dull"}
    lines = [(label, n) for n in range(count // 2) for label in words]
    return "text,label\n" + "".join(f"a {words[label]} thing {n % 7},{label}\n" for label, n in lines)


def test_the_command_measures_and_writes_json(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(rows())
    done = cli("baseline", "data=text_table", "data.table=t.csv", "run_dir=here")
    assert done.code == 0, done
    assert "TF-IDF with logistic" in done.out
    found = json.loads((tmp_path / "here" / "baseline.json").read_text())
    of_name = {each["name"]: each["metrics"] for each in found["baselines"]}
    assert of_name["the most frequent label"]["test/accuracy"] == 0.5
    assert of_name["TF-IDF with logistic regression"]["test/accuracy"] == 1.0
    assert cli("baseline", "--help").out.startswith("usage: zoo baseline data=NAME")
    wrong = cli("baseline", "data=text_tabel")
    assert (wrong.code, "Did you mean 'text_table'?" in wrong.err) == (2, True)
    assert cli("baseline", "data=text_table", "data.table=t.csv", "data.tabel=1").code == 2


def test_a_run_says_that_a_baseline_is_better() -> None:
    task: Any = SimpleNamespace(primary="val/accuracy", primary_mode="max")
    found = [{"name": "TF-IDF", "metrics": {"test/accuracy": 0.8}, "seconds": 1.0}]
    (said,) = baselines.describe(task, {"test/accuracy": 0.75}, found)
    assert said.startswith(
        "TF-IDF does better (test/accuracy 0.8000 against 0.7500 of the model), at the cost of 1.0 s"
    )
    assert list(baselines.describe(task, {"test/accuracy": 0.81}, found)) == []
    (same,) = baselines.describe(task, {"test/accuracy": 0.8}, found)
    assert same.startswith("the model is no better than TF-IDF")
    ranked: Any = SimpleNamespace(primary="val/ndcg@10", primary_mode="max")
    (popular,) = baselines.describe(ranked, {"test/ndcg@10": 0.1, "test/popularity_ndcg@10": 0.2}, [])
    assert popular.startswith("popularity does better")


@pytest.mark.parametrize(
    ("command", "metric"),
    [
        ("data=planted_graph data.nodes=400", "test/accuracy"),
        ("data=planted_baskets data.users=60", "test/ndcg@10"),
        ("data=planted_inference data.pairs=60", "test/accuracy"),
    ],
)
def test_other_domains(cli: Any, tmp_path: Path, command: str, metric: str) -> None:
    done = cli("baseline", *command.split(), "run_dir=here")
    assert done.code == 0, done
    found = json.loads((tmp_path / "here" / "baseline.json").read_text())
    assert all(0 <= each["metrics"][metric] <= 1 for each in found["baselines"])
