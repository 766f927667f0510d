"""A run of each model on the sample data of a shop, made once for all tests that need a checkpoint."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from zoo.cli.main import main

SAMPLES = Path(__file__).resolve().parents[3] / "data" / "samples" / "recommendation"


@functools.cache
def checkpoint(model: str = "sasrec", *options: str) -> Path:
    """Returns the best checkpoint of a short training. Ids and titles of the items are those of `titles.csv`."""
    folder = Path(tempfile.mkdtemp(prefix="zoo-test-"))
    data = [f"data.table={SAMPLES}/interactions.csv", f"data.titles={SAMPLES}/titles.csv"]
    few = [
        "data.min_rating=1",
        "data.min_user_items=1",
        "data.min_item_users=1",
        "data.max_epochs=2",
        "data.length=8",
        "model.net.dim=16",
    ]
    place, here = [f"run_dir={folder}/run", "logger=csv", "threads=1"], Path.cwd()
    os.chdir(folder)
    try:
        assert main(["train", f"model={model}", "data=interactions", *data, *few, *options, *place]) == 0
    finally:
        os.chdir(here)
    return folder / "run" / "checkpoints" / "best.ckpt"
