"""Runs from the command line: training, resuming, two processes, sweeps, fine-tuning, use of the checkpoint."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_cases import ROOT, command, figures, finished, same_run, stopped_and_continued, two_equal_one

SAMPLES = ROOT / "data" / "samples" / "vision" / "pictures"
DATA = ["data.train=96", "data.val=32", "data.test=40", "data.rows=2", "data.columns=2", "data.colours=4"]
SMALL = ["model.net.dim=16", "model.net.layers=2", "model.net.heads=2", "model.net.hidden=16"]
TINY = ["model=vit", *DATA, *SMALL, "data.max_epochs=2", "trainer=cpu", "logger=csv"]
RANDOM = ["model.net.dropout=0.1", "model.net.stochastic_depth=0.2", "model.mixup=0.8", "model.cutmix=1.0"]
OWN = ["data=image_folder", f"data.folder={SAMPLES}", "data.height=32", "data.width=32"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with everything random in it: dropout, mixing, stochastic depth."""
    from zoo.commandline.cli import main

    folder = tmp_path_factory.mktemp("vit")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", *TINY, *RANDOM, "run_dir=run"]) == 0
    return folder / "run"


def test_a_run_leaves_its_figures_and_the_confusion_matrix(trained: Path) -> None:
    found = figures(trained)
    assert {"test/accuracy", "test/f1_macro", "test/top5_accuracy", "test/calibration_error"} <= set(found)
    assert 0 <= found["truth/pointing_accuracy"] <= 1
    with open(trained / "test_confusion.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label / prediction"] for row in rows] == list("0123456789")
    assert sum(int(row[name]) for row in rows for name in "0123456789") == 40


@pytest.mark.parametrize("after", [1, 3, 4])
def test_an_interrupted_run_is_continued_exactly(trained: Path, cli: Any, after: int) -> None:
    """A run that is stopped and continued ends with the weights of an uninterrupted run."""
    assert same_run(stopped_and_continued(cli, [*TINY, *RANDOM], after), trained)


@pytest.mark.slow
def test_two_processes_give_the_figures_of_one(cli: Any, tmp_path: Path) -> None:
    two_equal_one(cli, TINY, tmp_path)
    one, two = ((tmp_path / run / "test_confusion.csv").read_text() for run in ("one", "two"))
    assert two == one


@pytest.mark.slow
def test_a_sweep_over_seeds(tmp_path: Path) -> None:
    finished(command("-m", *TINY, "seed=0,1", "paths.runs=runs"), tmp_path)
    (summary,) = tmp_path.rglob("summary.csv")
    with summary.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["n"] == "2"


def test_fine_tuning_on_own_pictures_of_another_size(trained: Path, cli: Any) -> None:
    best = trained / "checkpoints" / "best.ckpt"
    done = cli("train", f"init={best}", *OWN, "data.max_epochs=1", "trainer=cpu", "run_dir=own")
    assert done.code == 0, done.err
    assert "newly initialised: net.head.weight, net.head.bias" in done.out
    predicted = cli("predict", "own/checkpoints/best.ckpt", SAMPLES / "circle" / "circle_1.png", SAMPLES / "cross")
    assert predicted.code == 0, predicted.err
    rows = list(csv.DictReader(predicted.out.splitlines()))
    assert len(rows) == 10
    assert {row["prediction"] for row in rows} <= {"circle", "cross", "stripes"}
    assert [row["label"] for row in rows] == [""] + ["cross"] * 9


def test_weights_of_another_kind_of_net_are_refused(trained: Path, cli: Any) -> None:
    best = trained / "checkpoints" / "best.ckpt"
    done = cli("train", "model=se_resnet", f"init={best}", *DATA, "data.max_epochs=1", "trainer=cpu")
    assert done.code == 2
    assert "is of another model" in done.err


def test_published_weights_for_no_model_are_refused(cli: Any) -> None:
    done = cli("train", "init=torchvision:resnet50", *OWN)
    assert (done.code, "say for which model" in done.err) == (2, True)
    done = cli("train", "model=gat", "init=torchvision:resnet50")
    assert (done.code, "no published weights" in done.err) == (2, True)


def test_a_checkpoint_of_another_place_is_enough(trained: Path, cli: Any, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere.ckpt"
    shutil.copy(trained / "checkpoints" / "best.ckpt", copy)
    done = cli("evaluate", copy, "--worst", 2)
    assert done.code == 0, done.err
    assert "looks at" in done.out
