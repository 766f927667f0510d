"""Runs from the command line beside those of every domain: figures, fine-tuning, use of the checkpoint."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_cases import DOMAINS, ROOT, figures

SAMPLES = ROOT / "data" / "samples" / "vision" / "pictures"
OWN = ["data=image_folder", f"data.folder={SAMPLES}", "data.height=32", "data.width=32"]


@pytest.fixture(scope="module")
def trained(trained_on: Callable[[str], Path]) -> Path:
    return trained_on("vision")


def test_a_run_leaves_its_figures_and_the_confusion_matrix(trained: Path) -> None:
    found = figures(trained)
    assert {"test/accuracy", "test/f1_macro", "test/top5_accuracy", "test/calibration_error"} <= set(found)
    assert 0 <= found["truth/pointing_accuracy"] <= 1
    with open(trained / "test_confusion.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label / prediction"] for row in rows] == list("0123456789")
    assert sum(int(row[name]) for row in rows for name in "0123456789") == 40


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
    data = [each for each in DOMAINS["vision"].tiny if each.startswith("data.")]
    done = cli("train", "model=se_resnet", f"init={best}", *data, "data.max_epochs=1", "trainer=cpu")
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
