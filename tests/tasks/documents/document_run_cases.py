"""A run of each kind on small generated reviews, made once for all tests that need a checkpoint."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from zoo.cli.main import main

DATA = ["data.reviews=60", "data.sentences=4", "data.words=6", "data.batch_size=12", "data.max_epochs=1"]


@functools.cache
def checkpoint(model: str = "han", *options: str) -> Path:
    """The best weights of a short training."""
    folder = Path(tempfile.mkdtemp(prefix="zoo-test-"))
    here = Path.cwd()
    os.chdir(folder)
    place = [f"run_dir={folder}/run", "logger=csv", "threads=1", "trainer=cpu"]
    try:
        assert main(["train", f"model={model}", *DATA, "model.net.dim=8", *options, *place]) == 0
    finally:
        os.chdir(here)
    return folder / "run" / "checkpoints" / "best.ckpt"
