"""Every model in every precision that `trainer.precision` admits: a step of training and one of validation."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from small_data import small

from zoo.config import checks, compose, instantiate
from zoo.errors import ConfigError
from zoo.training.callbacks.guards import NanGuard
from zoo.training.setup import make_trainer

MODELS = compose.describe_choices("model")
QUICK = (
    "bidaf",
    "captioner",
    "coattention",
    "din",
    "esim",
    "gat",
    "han",
    "las",
    "long_document",
    "nmt",
    "sasrec",
    "vit",
)
"""A model of each way in which attention is used; the others take as long again."""


def composed(model: str, precision: str) -> dict[str, Any]:
    options = [*small(model), "trainer=cpu", f"trainer.precision={precision}", "data.max_epochs=1"]
    return compose.compose([f"model={model}", *options])


def train(chosen: dict[str, Any]) -> dict[str, float]:
    """One step of training and one of validation; returns what was logged."""
    data = instantiate.build(chosen["data"], "data")
    data.prepare_data()
    data.setup("fit")
    torch.manual_seed(0)
    module = instantiate.build(chosen["model"], "model", **data.sizes())
    once = {"max_steps": 1, "limit_train_batches": 1, "limit_val_batches": 1, "num_sanity_val_steps": 0}
    trainer = make_trainer(chosen["trainer"], callbacks=[NanGuard()], logger=False, **once)
    trainer.fit(module, data)
    assert {each.dtype for each in module.parameters()} == {torch.float32}
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


@pytest.mark.parametrize(
    "model", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in MODELS]
)
def test_a_step_in_bfloat16(model: str) -> None:
    figures = train(composed(model, "bf16-mixed"))
    assert figures
    assert all(math.isfinite(value) for name, value in figures.items() if name.endswith("/loss"))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_losses_of_bfloat16_are_those_of_single_precision(model: str) -> None:
    low, single = (train(composed(model, precision)) for precision in ("bf16-mixed", "32-true"))
    assert low.keys() == single.keys()
    assert low["train/loss"] == pytest.approx(single["train/loss"], rel=0.1)


def test_sixteen_bits_are_refused_on_a_processor() -> None:
    with pytest.raises(ConfigError, match=r"16-mixed needs a GPU.*bf16-mixed"):
        make_trainer(composed("vit", "16-mixed")["trainer"], logger=False)


@pytest.mark.parametrize("precision", ["bf16-true", "16-true", "64-true", "64"])
def test_weights_of_other_types_are_refused(precision: str) -> None:
    """Batches hold numbers of single precision, which such weights cannot be multiplied with."""
    with pytest.raises(ConfigError, match=r"trainer\.precision=.*32-true"):
        checks.check(composed("vit", precision))
