"""A small model, and its runs, each of which is made once for all tests that need its checkpoint."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from run_cases import DOMAINS

from zoo.cli.main import main

TRANSFORMER = [each for each in DOMAINS["translation"].tiny if not each.startswith("data.")]
"""The options of the model, without those of its data."""


@functools.cache
def checkpoint(*options: str) -> Path:
    """The best weights of a short training, with these options too."""
    folder = Path(tempfile.mkdtemp(prefix="zoo-test-"))
    here = Path.cwd()
    os.chdir(folder)
    place = [f"run_dir={folder}/run", "threads=1", "data.max_epochs=1"]
    try:
        assert main(["train", *DOMAINS["translation"].tiny, *options, *place]) == 0
    finally:
        os.chdir(here)
    return folder / "run" / "checkpoints" / "best.ckpt"
