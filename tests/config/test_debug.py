"""Short runs that look for errors, and the number of epochs as Lightning's users write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiers import each_once

from zoo.config.compose import compose, describe_choices


def test_the_trainer_may_set_the_number_of_epochs() -> None:
    composed = compose(["model=gat", "trainer.max_epochs=3"])
    assert composed["data"]["max_epochs"] == 3
    assert "max_epochs" not in composed["trainer"]  # one place holds it
    assert compose(["model=gat", "data.max_epochs=4"])["data"]["max_epochs"] == 4


@each_once(name=describe_choices("debug").keys(), model=describe_choices("model").keys())
def test_every_debug_file_composes_with_every_model(name: str, model: str) -> None:
    assert compose([f"model={model}", f"debug={name}"])["data"]["num_workers"] == 0


def test_a_limited_run_trains_on_three_batches_of_an_epoch(cli: Any, tmp_path: Path) -> None:
    done = cli("train", "model=sasrec", "data.users=60", "data.batch_size=4", "debug=limit", f"run_dir={tmp_path}/run")
    assert done.code == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["epochs"] == 2
    assert "step      6 " in done.out + done.err


def test_the_profiler_writes_to_the_run_directory(cli: Any, tmp_path: Path) -> None:
    done = cli("train", "model=sasrec", "data.users=60", "debug=profiler", f"run_dir={tmp_path}/run")
    assert done.code == 0
    (profile,) = (tmp_path / "run").glob("fit-profile*.txt")
    assert "run_training_batch" in profile.read_text()
