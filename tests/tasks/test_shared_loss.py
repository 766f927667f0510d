"""The loss that a run logs is that of all its processes, in every domain: the mean that training follows."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from run_cases import DOMAINS

from zoo import distributed
from zoo.config import compose, instantiate


@pytest.mark.parametrize("name", DOMAINS)
def test_the_loss_of_all_processes_is_logged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = ["model.ctc=0"] if name == "speech" else []  # a branch of CTC has a loss of its own
    composed = compose.compose([*DOMAINS[name].tiny, *alone])
    data = instantiate.build(composed["data"], "data")
    data.prepare_data()
    data.setup("fit")
    module = instantiate.build(composed["model"], "model", **data.sizes())
    logged: dict[str, tuple[Any, dict[str, Any]]] = {}
    monkeypatch.setattr(
        module, "log_dict", lambda metrics, **how: logged.update({key: (metrics[key], how) for key in metrics})
    )
    module.trainer = mock.MagicMock(global_step=0)  # a step alone, without a loop
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "mean_loss", lambda total, count: 3.0 * total / count)  # another process has more
    loss = module.train().training_step(next(iter(data.train_dataloader())), 0)
    value, how = logged["train/loss"]
    assert how["sync_dist"]
    assert torch.equal(value, loss["loss"] if isinstance(loss, dict) else loss)
