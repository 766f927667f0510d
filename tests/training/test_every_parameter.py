"""Every parameter of every mechanism has a gradient in every model: none is dead, and several processes serve it."""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import pytest
from small_data import small

from zoo.config import compose, instantiate
from zoo.config.groups import MECHANISMS
from zoo.errors import ConfigError


@functools.cache
def batch_of(model: str) -> tuple[Any, dict[str, int]]:
    """The first of the training split, and what it tells the model."""
    data = instantiate.build(compose.compose([f"model={model}", *small(model)])["data"], "data")
    data.prepare_data()
    data.setup("fit")
    return next(iter(data.train_dataloader())), data.sizes()


FAST = ("recurrent", "state_space", "uniform", "degree")
"""Those that leave something out."""


def choices() -> list[Any]:
    """All, also those that a model has no place for: composing every model would take longer than to skip them."""
    named = [(group, name) for group in MECHANISMS for name in compose.describe_choices(group)]
    found = [(model, group, name) for model in compose.describe_choices("model") for group, name in named]
    return [each if each[2] in FAST else pytest.param(*each, marks=pytest.mark.slow) for each in found]


@pytest.mark.parametrize(("model", "group", "name"), choices())
def test_every_parameter_has_a_gradient(model: str, group: str, name: str) -> None:
    batch, sizes = batch_of(model)
    try:
        module = instantiate.build(compose.compose([f"model={model}", f"{group}={name}"])["model"], "model", **sizes)
        module.check_rewards()
    except ConfigError:
        pytest.skip("refused in a sentence, which test_conf_files says")
    if (model, name) == ("din", "degree"):
        pytest.skip("refused at the first batch: histories have no degrees")
    for log in ("log", "log_dict"):
        setattr(module, log, lambda *_, **__: None)
    module.trainer = mock.MagicMock(global_step=0)  # a step alone, without a loop
    loss = module.train().training_step(batch, 0)
    (loss["loss"] if isinstance(loss, dict) else loss).backward()
    assert [name for name, each in module.named_parameters() if each.requires_grad and each.grad is None] == []
