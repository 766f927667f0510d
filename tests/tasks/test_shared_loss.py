"""What a run logs is of all its processes, in every domain: the loss that training follows, and metrics."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from run_cases import DOMAINS
from torchmetrics import Metric

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


@pytest.mark.parametrize("name", DOMAINS)
def test_an_evaluation_logs_metrics_whose_sums_all_processes_share(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    composed = compose.compose(DOMAINS[name].tiny)
    data = instantiate.build(composed["data"], "data")
    data.setup("fit")
    module = instantiate.build(composed["model"], "model", **data.sizes())
    logged: dict[str, Any] = {}
    monkeypatch.setattr(module, "log_dict", lambda metrics, **how: logged.update(metrics.items()))
    module.eval()
    with torch.inference_mode():
        module.validation_step(next(iter(data.val_dataloader())), 0)
        module.on_test_epoch_start()
        module.test_step(next(iter(data.test_dataloader())), 0)
    assert all(isinstance(metric, Metric) for metric in logged.values())
    if name in ("translation", "captioning", "speech", "recommendation"):
        module.on_test_epoch_end()  # some metrics are only logged there
    assert {"test/loss", "test/mrr"} & set(logged)


def test_a_number_is_not_logged_in_an_evaluation() -> None:
    """It would be the mean of one process."""
    composed = compose.compose(DOMAINS["answering"].tiny)
    data = instantiate.build(composed["data"], "data")
    module = instantiate.build(composed["model"], "model", **data.sizes())
    with pytest.raises(TypeError, match="test/accuracy: an evaluation logs metrics, whose sums all processes share"):
        module.log_evaluation({"test/accuracy": torch.tensor(0.5)}, 3)
