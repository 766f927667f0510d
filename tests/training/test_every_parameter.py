"""Every parameter of every mechanism has a gradient in every model: none is dead, and several processes serve it."""

from __future__ import annotations

import functools
from typing import Any
from unittest import mock

import pytest

from zoo.composing import build, config
from zoo.composing.groups import MECHANISMS
from zoo.errors import ConfigError

SMALL = {
    "planted_sessions": ["data.users=40", "data.items=30"],
    "planted_graph": ["data.nodes=400"],
    "planted_glimpse": ["data.train=40", "data.batch_size=4"],
    "planted_scenes": ["data.pictures=40", "data.held_out=10", "data.batch_size=4"],
    "planted_questions": ["data.pictures=40", "data.held_out=10", "data.batch_size=4"],
    "planted_passages": ["data.passages=40", "data.held_out=10", "data.batch_size=4"],
    "planted_inference": ["data.pairs=40", "data.held_out=10", "data.batch_size=4"],
}
"""Of each model's own data, enough for a batch."""


@functools.cache
def batch_of(model: str) -> tuple[Any, dict[str, int]]:
    """The first of the training split, and what it tells the model."""
    data = build.build(config.compose([f"model={model}", *small(model)])["data"], "data")
    data.prepare_data()
    data.setup("fit")
    return next(iter(data.train_dataloader())), data.sizes()


@functools.cache
def small(model: str) -> list[str]:
    return SMALL.get(config.compose([f"model={model}"])["names"]["data"], [])


FAST = ("recurrent", "state_space", "uniform", "degree")
"""Those that leave something out."""


def choices() -> list[Any]:
    found: list[Any] = []
    for model in config.options("model"):
        names = config.compose([f"model={model}"])["names"]
        groups = [group for group in MECHANISMS if names[group] is not None]
        found += [(model, group, name) for group in groups for name in config.options(group)]
    return [each if each[2] in FAST else pytest.param(*each, marks=pytest.mark.slow) for each in found]


@pytest.mark.parametrize(("model", "group", "name"), choices())
def test_every_parameter_has_a_gradient(model: str, group: str, name: str) -> None:
    batch, sizes = batch_of(model)
    try:
        module = build.build(config.compose([f"model={model}", f"{group}={name}"])["model"], "model", **sizes)
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
