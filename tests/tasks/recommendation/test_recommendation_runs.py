"""Runs beside those of every domain: figures, a sweep over losses, and fine-tuning with other items."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_cases import DOMAINS, command, figures, finished

from zoo.checkpoints import checkpoint


@pytest.fixture(scope="module")
def trained(trained_on: Callable[[str], Path]) -> Path:
    return trained_on("recommendation")


def test_a_run_leaves_its_figures_and_their_protocol(trained: Path) -> None:
    found = figures(trained)
    assert {"test/hr@10", "test/ndcg@10", "test/mrr", "test/coverage@10", "test/popularity_ndcg@10"} <= set(found)
    assert 0 <= found["truth/pointing_accuracy"] <= 1
    protocol = json.loads((trained / "metrics.json").read_text())["protocol"]
    assert "leave-one-out" in protocol
    assert "full ranking of 40 items, seen items" in protocol


@pytest.mark.slow
def test_a_sweep_over_losses(tmp_path: Path) -> None:
    finished(command("-m", *DOMAINS["recommendation"].tiny, "loss=bce,softmax", "paths.runs=runs"), tmp_path)
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
