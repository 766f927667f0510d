"""Options of small runs, and a run of each kind that is made once for all tests that need a checkpoint."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from zoo.commandline.cli import main

DATA = ["data.pairs=40", "data.held_out=8", "data.longest=6", "data.batch_size=8"]
SMALL = ["model.net.dim=16", "model.net.hidden=16", "model.net.layers=1", "model.net.heads=2", "model.search.width=2"]
TRANSFORMER = ["model=transformer_nmt", *SMALL]


@functools.cache
def checkpoint(*options: str) -> Path:
    """The best weights of a short training."""
    folder = Path(tempfile.mkdtemp(prefix="zoo-test-"))
    here = Path.cwd()
    os.chdir(folder)
    place = [f"run_dir={folder}/run", "logger=csv", "threads=1", "trainer=cpu", "data.max_epochs=1"]
    try:
        assert main(["train", *(options or TRANSFORMER), *DATA, *place]) == 0
    finally:
        os.chdir(here)
    return folder / "run" / "checkpoints" / "best.ckpt"
