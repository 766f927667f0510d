"""A loss or gradient that is not finite stops the run before it reaches the weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.checkpoints import checkpoint
from zoo.tasks.graph.task import NodeClassifier


class BadGradient(torch.autograd.Function):
    """The value as it is; its gradient is not a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * torch.nan


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`spoil(change)` applies `change(loss, batch)` to the loss of the third epoch."""
    step = NodeClassifier.training_step

    def patch(change: Any) -> None:
        def spoiled(self: NodeClassifier, batch: Any, batch_idx: int) -> Tensor:
            return change(self, batch) if self.current_epoch == 2 else step(self, batch, batch_idx)

        monkeypatch.setattr(NodeClassifier, "training_step", spoiled)

    def through(change: Any) -> None:
        patch(lambda module, batch: change(step(module, batch, 0)))

    patch.loss = through  # type: ignore[attr-defined]
    return patch


def finite(path: Path | str) -> dict[str, Tensor]:
    whole = checkpoint.read(path)
    assert all(bool(weight.isfinite().all()) for weight in whole["state_dict"].values())
    moments = [x for each in whole["optimizer_states"] for state in each["state"].values() for x in state.values()]
    assert moments
    assert all(bool(torch.isfinite(x).all()) for x in moments if isinstance(x, Tensor))
    return whole["state_dict"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda loss: loss * torch.nan, "the loss is nan"),
        (lambda loss: loss * torch.inf, "the loss is inf"),
        (lambda loss: BadGradient.apply(loss), "a gradient is not finite"),
    ],
)
def test_it_stops_and_the_weights_from_before_are_kept(
    cli: Any, tiny: list[str], spoil: Any, change: Any, said: str
) -> None:
    assert cli("train", *tiny, "data.max_epochs=2", "run_dir=two").code == 0
    spoil.loss(change)
    done = cli("train", *tiny, "run_dir=run")
    assert done.code == 2
    assert f"zoo: {said} at epoch 2, step 2, batch 0 (ids '0', '1', '2', '3', '4' and 235 more)." in done.err
    assert "All of that batch's inputs are finite." in done.err
    assert "The weights before this step are kept in last.ckpt" in done.err
    before = finite("two/checkpoints/last.ckpt")
    assert all(torch.equal(weight, before[name]) for name, weight in finite("run/checkpoints/last.ckpt").items())
    assert checkpoint.read("run/checkpoints/best.ckpt")["epoch"] in (0, 1)
    command = re.search(r"python train\.py (init|resume)=(\S+)", done.err)
    assert command is not None
    assert Path(command[2]) == Path("run/checkpoints/last.ckpt").absolute()


def test_a_learning_rate_that_is_far_too_high(cli: Any, tiny: list[str]) -> None:
    done = cli("train", *tiny, "data.max_epochs=20", "optimizer.lr=1e30", "run_dir=run")
    assert done.code == 2
    assert re.search(r"zoo: the loss is nan at epoch 1, step 1, batch 0", done.err)
    finite("run/checkpoints/last.ckpt")


@pytest.mark.parametrize("sparse", [False, True])
def test_what_is_not_finite_in_the_batch_is_named(cli: Any, tiny: list[str], spoil: Any, sparse: bool) -> None:
    def poison(module: NodeClassifier, batch: Any) -> Tensor:
        if sparse:
            from zoo.tasks.graph.sparse_features import SparseFeatures

            batch.x = SparseFeatures.from_csr(batch.x.to_sparse_csr())
        values = batch.x.values if sparse else batch.x
        values.view(-1)[0] = torch.nan
        return module(batch).sum()

    spoil(poison)
    done = cli("train", *tiny, "run_dir=run")
    assert done.code == 2
    assert "Not finite in that batch: x." in done.err
    finite("run/checkpoints/last.ckpt")


def test_good_weights_start_a_new_run(cli: Any, tiny: list[str], spoil: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil.loss(lambda loss: loss * torch.nan)
    assert cli("train", *tiny, "run_dir=run").code == 2
    spoil.loss(lambda loss: loss)
    assert cli("train", *tiny, "init=run/checkpoints/last.ckpt", "optimizer.lr=0.001", "run_dir=again").code == 0
