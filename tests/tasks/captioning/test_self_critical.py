"""Self-critical training: its gradient is that of the expected reward, and the reward grows."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from captioning_cases import captioner, doubled, gradients, pictures, recurrent

from zoo.decoding.beam import BeamSearch
from zoo.decoding.hypothesis import Hypothesis
from zoo.errors import ConfigError
from zoo.tasks.captioning.batch import CaptionBatch
from zoo.tasks.captioning.self_critical import SelfCritical, log_probability
from zoo.tasks.seq2seq.decoding_config import DecodingConfig, MaxLength
from zoo.tasks.seq2seq.text_codec import BEGIN, END, PAD
from zoo.training.attention_penalties import add_attention_penalties

LONGEST = 2


def critic(longest: int = LONGEST) -> SelfCritical:
    return SelfCritical(DecodingConfig(BeamSearch(), MaxLength(factor=0.0, constant=longest)))


def every_text(size: int) -> list[Hypothesis]:
    """Returns all texts of up to two tokens that can be drawn: ended, or cut at the limit."""
    words = [token for token in range(size) if token not in (PAD, BEGIN, END)]
    ended = [(), *((word,) for word in words)]
    cut = list(product(words, repeat=LONGEST))
    return [Hypothesis(each, 0.0, 0.0, True) for each in ended] + [Hypothesis(each, 0.0, 0.0, False) for each in cut]


def picture(number: int = 0) -> CaptionBatch:
    return doubled(pictures([number]))


def test_the_texts_that_can_be_drawn_have_probability_one() -> None:
    net, batch = recurrent().eval(), picture()
    texts = every_text(len(batch.language.vocabulary) if batch.language else 0)
    many = batch.source.select(torch.zeros(len(texts), dtype=torch.int64))
    assert float(log_probability(net, many, texts).exp().sum().detach()) == pytest.approx(1.0, abs=1e-9)


def test_the_gradient_is_that_of_the_expected_reward() -> None:
    """By enumeration: the mean of the loss's gradient over all draws is that of -E r, whatever the greedy text is."""
    net, batch, made = recurrent().eval(), picture(1), critic()
    assert batch.language is not None
    texts = every_text(len(batch.language))
    many = batch.select([0] * len(texts))
    rewards = made.rewards(many, texts).double()
    assert rewards.unique().numel() > 2
    (greedy,) = (each[0] for each in made.greedy(net, batch.source, batch.ids))
    baseline = made.rewards(batch, [greedy]).double()
    log_p = log_probability(net, many.source, texts)
    expected = gradients(net, -(log_p.exp() * rewards).sum())
    found = gradients(
        net, -(log_p.detach().exp() * (rewards - baseline) * log_probability(net, many.source, texts)).sum()
    )
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-12, rtol=1e-9)


def test_the_loss_is_that_of_what_was_drawn() -> None:
    """A draw has its own probability and reward; in the mean over many, the loss's gradient nears the expected one."""
    net, batch, made = recurrent(), picture(1), critic()
    net.train()
    many = batch.select([0] * 400)
    total, rewards = made(net, many, seed=0)
    assert net.training
    again, same = made(net, many, seed=0)
    assert torch.equal(total, again)
    assert torch.equal(rewards, same)
    assert rewards.unique().numel() > 1
    assert not torch.equal(rewards, made(net, many, seed=1)[1])
    texts = every_text(len(batch.language) if batch.language else 0)
    every = batch.select([0] * len(texts))
    worth = made.rewards(every, texts).double()
    log_p = log_probability(net.eval(), every.source, texts)
    mean, square = (float((log_p.exp() * worth**power).sum()) for power in (1, 2))
    assert float(rewards.mean()) == pytest.approx(mean, abs=5 * math.sqrt((square - mean**2) / 400))
    expected, found = gradients(net, -(log_p.exp() * worth).sum()), gradients(net, total / 400)
    flat = [torch.cat([each.flatten() for each in values.values()]) for values in (expected, found)]
    assert float(torch.nn.functional.cosine_similarity(*flat, dim=0)) > 0.8


@pytest.mark.slow
def test_training_raises_the_reward() -> None:
    task = captioner(recurrent, self_critical=True, longest=MaxLength(factor=0.0, constant=4)).train()
    batch = doubled(pictures())
    optimizer = torch.optim.Adam(task.parameters(), lr=0.02)
    assert task.critic is not None
    rewards = []
    for step in range(60):
        total, found = task.critic(task.net, batch.select([0, 1, 2, 3] * 4), step)
        optimizer.zero_grad()
        (total / 16).backward()
        optimizer.step()
        rewards.append(float(found.mean()))
    assert sum(rewards[-10:]) > 1.3 * sum(rewards[:10])


def test_what_self_critical_training_needs_is_said() -> None:
    task: Any = captioner(recurrent, self_critical=True)
    with pytest.raises(ConfigError, match=r"data.references=true"):
        task.training_step(replace(doubled(pictures()), written=None), 0)
    add_attention_penalties(task, {"doubly_stochastic": 1.0})
    with pytest.raises(ConfigError, match=r"penalty.doubly_stochastic=0"):
        task.training_step(doubled(pictures()), 0)
