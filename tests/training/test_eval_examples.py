"""The evaluation at the end takes a sample of the training split, and says so; validation and test are whole."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from zoo.config import compose
from zoo.training.run import train
from zoo.training.run_config import RunConfig


@pytest.mark.parametrize(("count", "said"), [(10, "train: 10 of 26 examples"), (26, None), (100, None), (None, None)])
def test_so_many_training_examples_are_evaluated(
    dense: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int | None, said: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[int] = []
    test_step = dense.DenseTask.test_step

    def counted(self: Any, batch: Any, batch_idx: int) -> None:
        seen.extend([0] if batch_idx == 0 else [])
        seen[-1] += len(batch[1])
        test_step(self, batch, batch_idx)

    monkeypatch.setattr(dense.DenseTask, "test_step", counted)
    made = compose.compose(["model=gat", "logger=csv", "trainer=cpu", "run_dir=run"])
    made["model"] = {"_target_": "zoo.tasks.dense_cases.DenseTask", "optimization": made["optimization"]}
    made["data"] = {"_target_": "zoo.tasks.dense_cases.sequences", "max_epochs": 1, "eval_examples": count}
    train(RunConfig(made))
    assert seen == [10 if said else 26, 26, 26]
    assert json.loads(Path("run/metrics.json").read_text()).get("protocol") == said


@pytest.mark.parametrize("name", compose.describe_choices("data"))
def test_every_data_set_of_batches_has_the_option(name: str) -> None:
    found = compose.compose([f"data={name}", "model=gat"])["data"]
    assert ("eval_examples" in found) == ("eval_batch_size" in found)
