"""Runs as a user starts them: training, continuing, two processes, a sweep, and fine-tuning with other items."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from run_cases import command, figures, finished, same_run, stopped_and_continued, two_equal_one

from zoo.checkpoints import checkpoint

DATA = ["data.users=90", "data.items=40", "data.reach=4", "data.shortest=8", "data.longest=12", "data.batch_size=32"]
TINY = ["model=sasrec", *DATA, "model.net.dim=16", "data.max_epochs=2", "trainer=cpu", "logger=csv"]
RANDOM = ["loss=bce", "loss.negatives=2", "model.net.dropout=0.2", "attention.dropout=0.2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all kinds of randomness: dropout and sampled negatives."""
    from zoo.commandline.cli import main

    folder = tmp_path_factory.mktemp("sasrec")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", *TINY, *RANDOM, "run_dir=run"]) == 0
    return folder / "run"


def test_a_run_leaves_its_figures_and_their_protocol(trained: Path) -> None:
    found = figures(trained)
    assert {"test/hr@10", "test/ndcg@10", "test/mrr", "test/coverage@10", "test/popularity_ndcg@10"} <= set(found)
    assert 0 <= found["truth/pointing_accuracy"] <= 1
    protocol = json.loads((trained / "metrics.json").read_text())["protocol"]
    assert "leave-one-out" in protocol
    assert "full ranking of 40 items, seen items" in protocol


@pytest.mark.parametrize("after", [1, 3, 4])
def test_an_interrupted_run_is_continued_exactly(trained: Path, cli: Any, after: int) -> None:
    """A run that is stopped within its six steps ends with the weights of an uninterrupted run."""
    assert same_run(stopped_and_continued(cli, [*TINY, *RANDOM], after), trained)


@pytest.mark.slow
def test_two_processes_give_the_figures_of_one(cli: Any, tmp_path: Path) -> None:
    two_equal_one(cli, TINY, tmp_path)


@pytest.mark.slow
def test_a_sweep_over_losses(tmp_path: Path) -> None:
    finished(command("-m", *TINY, "loss=bce,softmax", "paths.runs=runs"), tmp_path)
    (summary,) = tmp_path.rglob("summary.csv")
    with summary.open(newline="") as file:
        assert {row["loss"] for row in csv.DictReader(file)} == {"bce", "softmax"}


def test_fine_tuning_keeps_items_by_their_ids(trained: Path, cli: Any, tmp_path: Path) -> None:
    """The user's own files have items of which the model knows some."""
    best = trained / "checkpoints" / "best.ckpt"
    known = checkpoint.read(best)["zoo"]["data"]["items"]
    names = [*known[5:15], "scarf", "hat"]
    rows = [f"u{user},{names[(user * 3 + step) % len(names)]}" for user in range(12) for step in range(8)]
    Path("own.csv").write_text("\n".join(["user,item", *rows]) + "\n")
    done = cli("train", f"init={best}", "data=interactions", "data.table=own.csv", "data.max_epochs=1", "trainer=cpu",
               "data.length=12", "run_dir=own")  # fmt: skip
    assert done.code == 0, done.err
    assert "scarf" in done.out
    new = checkpoint.read(Path("own/checkpoints/best.ckpt"))["zoo"]["data"]["items"]
    assert set(new) == set(names)


def test_a_loss_for_a_model_that_has_its_own_is_refused(cli: Any) -> None:
    done = cli("train", "model=gat", "loss=softmax")
    assert done.code == 2
    assert "loss" in done.err
