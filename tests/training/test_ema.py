"""The average of the weights, by hand; where it is seen, and where the trained weights are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from zoo.checkpoints import checkpoint
from zoo.tasks.graph.task import NodeClassifier
from zoo.training import EMA

EMA_OPTIONS = ["callbacks=ema", "callbacks.checkpoint.monitors={val/loss: min}", "optimizer.lr=0.01"]


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("warmup", [True, False])
def test_it_is_the_average_of_what_was_trained(
    accumulated: int, warmup: bool, cli: Any, tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[torch.Tensor] = []
    step = NodeClassifier.optimizer_step

    def seen(self: NodeClassifier, *arguments: Any) -> None:
        if not trained:
            trained.append(flat(self.state_dict()))
        step(self, *arguments)
        trained.append(flat(self.state_dict()))

    validated: list[torch.Tensor] = []
    monkeypatch.setattr(NodeClassifier, "optimizer_step", seen)
    monkeypatch.setattr(
        NodeClassifier, "on_validation_epoch_end", lambda self: validated.append(flat(self.state_dict())), raising=False
    )
    options = [*EMA_OPTIONS, "data.batch_size=40", f"callbacks.average.warmup={warmup}", "callbacks.average.decay=0.8"]
    assert cli("train", *tiny, *options, f"trainer.accumulate_grad_batches={accumulated}", "run_dir=run").code == 0
    average = trained[0].double()
    for number, weights in enumerate(trained[1:]):
        decay = min(0.8, (1 + number) / (10 + number)) if warmup else 0.8
        average = decay * average + (1 - decay) * weights.double()
    last = checkpoint.read("run/checkpoints/last.ckpt")
    torch.testing.assert_close(flat(last["state_dict"]).double(), average, rtol=1e-5, atol=1e-6)
    assert torch.equal(flat(last["trained"]), trained[-1])
    assert torch.equal(validated[3], flat(last["state_dict"]))  # then come the evaluations of the best weights
    best = checkpoint.read("run/checkpoints/best.ckpt")
    assert any(torch.equal(flat(best["state_dict"]), each) for each in validated)
    assert "trained" not in best


def test_what_was_begun_without_it_is_not_continued_with_it(cli: Any, tiny: list[str], tiny_run: Path) -> None:
    done = cli("train", f"resume={tiny_run}/checkpoints/last.ckpt", "callbacks=ema", "run_dir=run")
    assert done.code == 2
    assert "the run was begun without an average" in done.err


def test_a_decay_that_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="decay is to be a number of at least 0 and below 1"):
        EMA(decay=1.0)


def flat(weights: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.flatten().clone() for value in weights.values()])
