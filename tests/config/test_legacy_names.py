"""Names of parts in older configurations: those of modules become those that packages export."""

from __future__ import annotations

import importlib

import pytest

from zoo.config import compose
from zoo.config.legacy_names import upgrade_config, upgrade_targets
from zoo.errors import ConfigError
from zoo.validation import ValidationError

NAMES = {
    "zoo.tasks.graph.module.NodeClassifier": "zoo.tasks.graph.NodeClassifier",
    "zoo.tasks.vision.cct.CCT": "zoo.tasks.vision.CCT",
    "zoo.tasks.recommendation.losses.BCE": "zoo.tasks.recommendation.BCE",
    "zoo.callbacks.Keeper": "zoo.training.CheckpointAndStop",
    "zoo.loggers.MetricsFile": "zoo.training.MetricsFile",
    "zoo.optimisation.Schedule": "zoo.optim.LRSchedule",
    "zoo.training.Schedule": "zoo.optim.LRSchedule",
    "zoo.attention.positions.Learned": "zoo.attention.Learned",
    "zoo.attention.AttendFactory": "zoo.attention.AttentionFactory",
    "zoo.attention.factories.SiteFactory": "zoo.attention.MechanismFactory",
    "zoo.attention.TwoScores": "zoo.attention.ScorePair",
    "zoo.attention.NormalisedAdditive": "zoo.attention.NormalizedAdditive",
    "zoo.attention.Unnormalised": "zoo.attention.Unnormalized",
    "zoo.attention.RenormalisedDropout": "zoo.attention.RenormalizedDropout",
    "zoo.attention.HeadDisagreement": "zoo.attention.HeadSimilarity",
    "zoo.attention.MultiHead": "zoo.attention.MultiheadAttention",
}


@pytest.mark.parametrize("old", NAMES)
def test_a_name_of_a_module_becomes_a_public_one(old: str) -> None:
    assert upgrade_targets({"a": [{"_target_": old}]}) == {"a": [{"_target_": NAMES[old]}]}
    assert upgrade_targets(f"model.net={{_target_: {old}, _partial_: true}}") == (
        f"model.net={{_target_: {NAMES[old]}, _partial_: true}}"
    )
    package, _, name = NAMES[old].rpartition(".")
    assert hasattr(importlib.import_module(package), name)


@pytest.mark.parametrize(
    "text",
    [
        *NAMES.values(),
        "torch.optim.Adam",
        "my.zoo.callbacks.Keeper",
        "zoo.callbacks.checkpoint.Keeper",
        "zoo.optimisation",
        "runs/zoo.attention.ckpt",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert upgrade_targets(text) == text


def test_other_values_stay() -> None:
    values = [1, 0.5, None, True, {"a": {}}]
    assert upgrade_targets(values) == values


def test_a_configuration_without_end_is_refused() -> None:
    nested: list[object] = []
    nested.append(nested)
    with pytest.raises(ValidationError, match="nested more than 64 levels"):
        upgrade_targets(nested)


OPTIONS = {
    "callbacks.keeper.patience": "callbacks.checkpoint.patience",
    "callbacks.keeper.every_seconds": "callbacks.checkpoint.save_every_seconds",
    "optimisation.rates": "optimization.lr_multipliers",
    "optimisation.freeze": "optimization.freeze",
    "attention.normalise._partial_": "attention.normalizer._partial_",
    "scheduler.floor": "scheduler.min_lr_ratio",
}


@pytest.mark.parametrize("old", OPTIONS)
def test_an_old_option_is_answered_by_its_new_name(old: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose.check_overrides(["model=gat", "scheduler=cosine", f"{old}=1"])
    assert str(caught.value) == f"there is no option {old!r}. It is now {OPTIONS[old]!r}."
    compose.check_overrides(["model=gat", "scheduler=cosine", f"{OPTIONS[old]}=1"])


def test_a_stored_configuration_has_the_options_of_today() -> None:
    schedule = {"_target_": "zoo.training.Schedule", "kind": "steps", "factor": 0.1, "floor": 0.0}
    optimisation = {"_target_": "zoo.training.Optimisation", "rates": {"net": 0.1}, "scheduler": schedule}
    keeper = {"_target_": "zoo.training.Keeper", "every_seconds": 3}
    stored = {
        "model": {"optimisation": optimisation, "net": {"rates": 1, "factor": 2}},
        "callbacks": {"keeper": keeper},
        "overrides": [*(f"{old}=1" for old in OPTIONS), "data.floor=1"],
    }
    found = upgrade_config(stored)
    assert found["model"]["optimization"]["lr_multipliers"] == {"net": 0.1}
    assert found["model"]["optimization"]["scheduler"]["gamma"] == 0.1
    assert found["model"]["net"] == stored["model"]["net"]
    assert found["callbacks"]["checkpoint"]["save_every_seconds"] == 3
    assert found["overrides"] == [*(f"{new}=1" for new in OPTIONS.values()), "data.floor=1"]


def test_a_stored_mechanism_has_the_options_of_today() -> None:
    softmax = {"_target_": "zoo.attention.Softmax", "_partial_": True}
    old = {"_target_": "zoo.attention.AttendFactory", "score": softmax, "normalise": softmax}
    today = {"_target_": "zoo.attention.AttentionFactory", "score": softmax, "normalizer": softmax}
    features = {"_target_": "zoo.tasks.speech.Features", "normalise": "global"}
    stored = {"attention": old, "model": {"net": {"attend": old}}, "data": {"features": features}}
    assert upgrade_config(stored) == {**stored, "attention": today, "model": {"net": {"attend": today}}}
