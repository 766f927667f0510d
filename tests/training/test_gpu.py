"""Runs on GPUs: what a machine without one can only compose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import zoo

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize(
    "options",
    [
        ["trainer=gpu"],
        ["trainer=gpu", "trainer.precision=bf16-mixed"],
        ["trainer=gpu", "trainer.precision=16-mixed"],
        ["trainer=ddp"],
        ["trainer=fsdp"],
    ],
    ids=" ".join,
)
def test_a_run_leaves_a_whole_checkpoint_that_a_cpu_can_use(
    cli: Any, tiny: list[str], tmp_path: Path, options: list[str]
) -> None:
    done = cli("train", *tiny, *options, f"run_dir={tmp_path / 'run'}")
    assert done.code == 0, done.err
    module = zoo.load(tmp_path / "run" / "checkpoints" / "best.ckpt")
    assert all(parameter.device.type == "cpu" and parameter.isfinite().all() for parameter in module.parameters())
    assert cli("evaluate", str(tmp_path / "run" / "checkpoints" / "best.ckpt")).code == 0
