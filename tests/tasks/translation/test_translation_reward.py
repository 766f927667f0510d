"""Rewards of hard attention: the gradient against that of the expected loss over every choice of keys; the baseline."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from translation_cases import languages, translator

from zoo.attention import AttentionFactory, HardReinforce, ScaledDot, Softmax, Support
from zoo.checkpoints.finetune import load_matching_weights
from zoo.errors import ZooError
from zoo.nn import Bahdanau, InputFeeding, Luong
from zoo.tasks.seq2seq import ReinforceLoss, ScheduledSampling
from zoo.tasks.seq2seq.text_codec import TextCodec
from zoo.tasks.translation import RecurrentEncoder, RecurrentTranslator, TransformerTranslator, Translator
from zoo.tasks.translation.batch import Pair, TranslationBatch
from zoo.text import Words
from zoo.training.preflight import check

DECODERS: dict[str, Any] = {"bahdanau": Bahdanau, "luong": Luong, "input feeding": InputFeeding}
WORDS = ("source_tokens", "target_tokens")
SOFT = -1
"""The choice of the probabilities themselves."""
Slot = tuple[str, int, int, int]
"""Site, example, query, and the number of keys that it may choose from."""


def hard(mixing: float) -> AttentionFactory:
    return AttentionFactory(score=ScaledDot, normalizer=partial(HardReinforce, mixing=mixing))


def batch(*texts: tuple[str, str]) -> TranslationBatch:
    language = TextCodec.from_counts(Words(), Counter(list("abcxy")))
    found = []
    for number, (source, target) in enumerate(texts):
        read, written = (language.encode(text)[1] for text in (source, target))
        found.append(Pair(read, written, str(number), "train", None, None))
    return TranslationBatch.collate(found, language)


def task(net: Any, **options: Any) -> Translator:
    """Every parameter drawn at random, and no dropout."""
    module = translator(net, **options).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    module.log = lambda *_, **__: None  # type: ignore[method-assign, assignment]
    return module


def recurrent(decoder: str, mixing: float, **options: Any) -> Translator:
    net = partial(
        RecurrentTranslator,
        attend=hard(mixing),
        encoder=partial(RecurrentEncoder, dim=3, hidden=2),
        decoder=partial(DECODERS[decoder], dim=3, hidden=4, compared=3),
    )
    return task(net, **options)


class Script:
    """Makes every site choose what it is told, and keeps the probabilities of its choices."""

    def __init__(self, module: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
        sites = module.find_reward_sites()
        self.site_of = {module.get_submodule(site).normalizer: site for site in sites}
        self.choices: dict[tuple[str, int, int], int] = {}
        self.seen: dict[tuple[str, int, int], Tensor] = {}
        self.at = dict.fromkeys(sites, 0)
        script = self

        def draw(normaliser: HardReinforce, probabilities: Tensor, support: Support) -> Tensor:
            return script.drawn(script.site_of[normaliser], probabilities)

        monkeypatch.setattr(HardReinforce, "draw", draw)

    def begin(self, choices: dict[tuple[str, int, int], int]) -> None:
        self.choices, self.seen, self.at = choices, {}, dict.fromkeys(self.at, 0)

    def drawn(self, site: str, probabilities: Tensor) -> Tensor:
        rows = []
        for example, of_example in enumerate(probabilities[:, 0]):
            for query, row in enumerate(of_example):
                place = (site, example, self.at[site] + query)
                choice = self.choices.get(place, 0)
                self.seen[place] = row
                rows.append(row if choice == SOFT else F.one_hot(torch.tensor(choice), len(row)).to(row))
        self.at[site] += probabilities.shape[2]
        return torch.stack(rows).view(probabilities.shape)


def scripts(slots: list[Slot], mixing: float) -> Iterator[dict[tuple[str, int, int], int]]:
    options = [[*([SOFT] if mixing else []), *range(keys)] for *_, keys in slots]
    for chosen in itertools.product(*options):
        yield {slot[:3]: choice for slot, choice in zip(slots, chosen, strict=True)}


def compare(module: Translator, given: TranslationBatch, slots: list[Slot], mixing: float, script: Script) -> None:
    """The mean gradient of training steps, over all choices, is that of the expected loss."""
    assert module.reward is not None
    parameters = list(module.net.parameters())
    expected = torch.zeros((), dtype=torch.float64)
    found = [torch.zeros_like(parameter) for parameter in parameters]
    total = 0.0
    assert given.targets is not None
    for choices in scripts(slots, mixing):
        script.begin(choices)
        module.reward.baseline.fill_(-1.3)
        gradients = torch.autograd.grad(module.training_step(given, 0), parameters, allow_unused=True)
        script.begin(choices)
        logits, labels = module(given)[given.targets.is_real], given.targets.tokens[given.targets.is_real]
        loss = F.cross_entropy(logits, labels, label_smoothing=module.smoothing)
        chance = torch.ones((), dtype=torch.float64)
        for place, choice in choices.items():
            chance = chance * (mixing if choice == SOFT else (1 - mixing) * script.seen[place][choice])
        expected = expected + chance * loss
        total += chance.item()
        for each, gradient in zip(found, gradients, strict=True):
            each += 0.0 if gradient is None else chance.detach() * gradient
    assert total == pytest.approx(1.0, abs=1e-12)
    exact = torch.autograd.grad(expected, parameters, allow_unused=True)
    assert any(gradient is not None and gradient.abs().max() > 1e-3 for gradient in exact)
    for each, gradient in zip(found, exact, strict=True):
        torch.testing.assert_close(each, torch.zeros_like(each) if gradient is None else gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mixing", [0.0, 0.5])
@pytest.mark.parametrize("decoder", DECODERS)
def test_the_mean_gradient_over_all_choices_is_that_of_the_expected_loss(
    decoder: str, mixing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a text of two or three steps and one of one step, with two and three keys."""
    module = recurrent(decoder, mixing, reward=partial(ReinforceLoss, weight=1.0, entropy=0.0))
    given = batch(("a b", "x" if mixing else "x y"), ("c a b", ""))
    (site,) = module.find_reward_sites()
    slots = [(site, 0, step, 2) for step in range(2 if mixing else 3)] + [(site, 1, 0, 3)]
    compare(module, given, slots, mixing, Script(module, monkeypatch))


def test_draws_of_encoders_and_of_self_attention_are_rewarded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    net = partial(
        TransformerTranslator,
        attend=hard(0.0),
        encoder_attend=hard(0.0),
        decoder_attend=hard(0.0),
        dim=4,
        layers=1,
        heads=1,
        hidden=3,
        dropout=0.0,
    )
    module = task(net, reward=partial(ReinforceLoss, weight=1.0, entropy=0.0))
    inside, before, across = module.find_reward_sites()
    slots = [(inside, 0, 0, 2), (inside, 0, 1, 2), (before, 0, 1, 2), (across, 0, 0, 2), (across, 0, 1, 2)]
    compare(module, batch(("a b", "x")), slots, 0.0, Script(module, monkeypatch))


def test_the_baseline_is_a_moving_average_and_the_entropy_a_bonus(monkeypatch: pytest.MonkeyPatch) -> None:
    module = recurrent(
        "bahdanau", 0.0, reward=partial(ReinforceLoss, weight=0.25, entropy=0.03, kept=0.8), smoothing=0.0
    )
    given, script = batch(("a b", "x y"), ("c a b", "")), Script(module, monkeypatch)
    assert module.reward is not None
    (site,) = module.find_reward_sites()
    before = 0.0
    for choices in ({(site, 0, 0): 1}, {(site, 1, 0): 2}):
        script.begin(choices)
        logs = module(given).log_softmax(-1)
        gained = {(0, step): logs[0, step, token].item() for step, token in enumerate(given.targets.tokens[0].tolist())}
        gained[1, 0] = logs[1, 0, given.targets.tokens[1, 0]].item()
        added = 0.0
        for example, step in gained:
            row = script.seen[site, example, step].tolist()
            later = [gained[example, other] for other in range(step, 3) if (example, other) in gained]
            advantage = sum(later) - before * len(later)
            added -= 0.25 * advantage * math.log(row[choices.get((site, example, step), 0)])
            added += 0.03 * sum(p * math.log(p) for p in row if p)
        script.begin(choices)
        loss = module.training_step(given, 0)
        assert loss.item() == pytest.approx((added - sum(gained.values())) / 4, abs=1e-12)
        before = 0.8 * before + 0.2 * sum(gained.values()) / 4
        assert module.reward.baseline.item() == pytest.approx(before, abs=1e-12)


def test_a_scheduled_decoder_is_rewarded_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a share that is almost zero no token is its own."""
    scheduled = ScheduledSampling(share=1e-30, steps=1)
    reward = partial(ReinforceLoss, weight=1.0, entropy=0.1)
    losses = []
    for options in ({}, {"scheduled": scheduled}):
        module = recurrent("luong", 0.0, reward=reward, **options)
        module.trainer = type("Trainer", (), {"global_step": 1})()  # type: ignore[assignment]
        script = Script(module, monkeypatch)
        script.begin({(module.find_reward_sites()[0], 0, 1): 1})
        losses.append(module.training_step(batch(("a b", "x y"), ("c a b", "")), 0))
    torch.testing.assert_close(*losses, rtol=0.0, atol=1e-12)


def test_other_attention_has_no_reward() -> None:
    net = partial(TransformerTranslator, attend=AttentionFactory(score=ScaledDot, normalizer=Softmax), dim=4, heads=1)
    module = task(net)
    assert module.reward is None
    assert not any("reward" in name for name in module.state_dict())
    assert "reward.baseline" in recurrent("luong", 0.0).state_dict()


def test_fine_tuning_keeps_the_baseline_and_may_change_the_mechanism() -> None:
    old, of = recurrent("luong", 0.5), languages()
    assert old.reward is not None
    old.reward.baseline.fill_(-0.75)
    words = {name: list(map(str, range(len(each)))) for name, each in zip(WORDS, (of.source, of.target), strict=True)}
    content = {"state_dict": old.state_dict(), "zoo": {"data": words}}
    again = recurrent("luong", 0.5)
    assert not load_matching_weights(again, words, content, "old.ckpt").initialized
    assert again.reward is not None
    assert again.reward.baseline.item() == -0.75
    soft = task(
        partial(
            RecurrentTranslator,
            attend=AttentionFactory(score=ScaledDot, normalizer=Softmax),
            encoder=partial(RecurrentEncoder, dim=3, hidden=2),
            decoder=partial(Luong, dim=3, hidden=4, compared=3),
        )
    )
    assert not load_matching_weights(soft, words, content, "old.ckpt").initialized
    back = {"state_dict": soft.state_dict(), "zoo": {"data": words}}
    assert load_matching_weights(again, words, back, "soft.ckpt").initialized == ("reward.baseline",)


def test_a_model_that_gives_no_reward_refuses_it_at_start_up() -> None:
    with pytest.raises(ZooError, match=r"draws keys without a gradient .* attention=hard passes a gradient"):
        check(["model=sasrec", "attention=hard_reinforce", "data.users=40", "data.items=30"])
