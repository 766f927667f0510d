"""The time for which a run waits for its data, over its sessions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zoo.data.loader import Loader
from zoo.training.callbacks.progress import DataWaitTimer


def test_training_and_validation_wait_in_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def slowly(examples: list[int]) -> list[int]:
        clock[0] += 2.0
        return examples

    trainer: Any = SimpleNamespace(
        train_dataloader=Loader([1, 2, 3], collate=slowly), val_dataloaders=Loader([1, 2], collate=slowly)
    )
    waiting = DataWaitTimer()
    waiting.load_state_dict({"seconds": 100.0})  # of an earlier session
    for _ in trainer.train_dataloader:
        waiting.on_train_batch_end(trainer)
    list(trainer.val_dataloaders)
    waiting.on_validation_end(trainer)
    assert waiting.state_dict() == {"seconds": 110.0}
