"""Training with some nodes at a time: every node once an epoch, and the step of those nodes in the whole graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from zoo.cli.main import main
from zoo.config import compose, instantiate
from zoo.tasks.graph.datamodule import planted_graph
from zoo.tasks.graph.graph import SPLITS

SMALL: dict[str, Any] = {"nodes": 200, "classes": 3, "tags": 4, "trusted": 2, "distractors": 2, "width": 8}


def test_every_training_node_once_an_epoch_in_a_new_order() -> None:
    data = planted_graph(**SMALL, max_epochs=1, batch_size=32)
    loader = data.train_dataloader()
    training = (data.graph.split == SPLITS["train"]).nonzero().squeeze(1).tolist()
    epochs = [[batch.nodes.tolist() for batch in loader] for _ in range(2)]
    for batches in epochs:
        assert len(batches) == len(loader) == -(-len(training) // 32)
        assert sorted(node for batch in batches for node in batch) == training
    assert epochs[0] != epochs[1]
    assert len(data.loader("train")) == len(data.val_dataloader()) == 1  # evaluation is of all at once


def test_a_step_is_that_of_its_nodes_in_the_whole_graph() -> None:
    data = planted_graph(**SMALL, max_epochs=1, batch_size=16)
    torch.manual_seed(0)
    module = instantiate.build(compose.compose(["model=gat"])["model"], "model", **data.sizes())
    for batch in data.train_dataloader():
        torch.testing.assert_close(module._logits(batch, batch.nodes), module(batch)[batch.nodes])


def test_a_batch_size_that_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="batch_size is to be a whole number of at least 1 or null"):
        planted_graph(**SMALL, max_epochs=1, batch_size=0)


def test_it_learns(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = [f"data.{key}={value}" for key, value in SMALL.items()]
    options += ["data.batch_size=32", "data.max_epochs=3", "logger=csv", "run_dir=run"]
    assert main(["train", "model=gat", *options]) == 0
    assert (tmp_path / "run" / "metrics.json").exists()
