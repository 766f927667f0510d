"""A small run that is made once for all tests that need a checkpoint."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from run_cases import DOMAINS

from zoo.commandline.cli import main


@functools.cache
def checkpoint() -> Path:
    """The best weights of a short training."""
    folder = Path(tempfile.mkdtemp(prefix="zoo-test-"))
    here = Path.cwd()
    os.chdir(folder)
    place = [f"run_dir={folder}/run", "threads=1", "data.max_epochs=1"]
    try:
        assert main(["train", *DOMAINS["translation"].tiny, *place]) == 0
    finally:
        os.chdir(here)
    return folder / "run" / "checkpoints" / "best.ckpt"
