"""Guided attention of a recogniser, against loops over the recordings of a batch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from recogniser_cases import batch, recogniser
from torch import Tensor

from zoo.attention import record
from zoo.training.attention_penalties import add_attention_penalties


def penalised(**weights: float) -> tuple[float, Tensor, Any]:
    """The penalty of a training step, and the weights that it is of."""
    module, made = recogniser(), batch()
    site = f"net.{module.net.align}"
    with torch.no_grad(), record(module) as maps:
        module(made)
    found: dict[str, Any] = {}
    add_attention_penalties(module, weights)
    module.log = lambda name, value, **_: found.update({name: value})  # type: ignore[method-assign, assignment]
    loss = module.training_step(made, 0)
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())
    (name,) = weights
    penalty, spelled = float(found[f"train/penalty_{name}"]), float(found["train/loss"].detach())
    assert float(loss.detach()) == pytest.approx(spelled + weights[name] * penalty)
    steps = torch.cat([step.dense().mean(1) for step in maps[site].steps()], 1)
    return penalty, steps, (module, made)


def test_guided_attention() -> None:
    """W = 1 - exp(-(n/N - t/T)^2 / 2 g^2) (Tachibana et al. 2018, section 4), over real steps and places alone."""
    found, weights, (module, made) = penalised(locality=0.5)
    total, count = 0.0, 0
    for number, steps in enumerate(made.targets.lengths.tolist()):
        places = int(module.places(made)[number].sum())
        for step in range(steps):
            count += 1
            for place in range(places):
                away = step / steps - place / places
                total += float(weights[number, step, place]) * (1 - math.exp(-(away**2) / (2 * 0.2**2)))
    assert found == pytest.approx(total / count)


@pytest.mark.parametrize("kind", ["guidance_cross_entropy", "guidance_squared"])
def test_guidance_by_given_alignments(kind: str) -> None:
    found, weights, (module, made) = penalised(**{kind: 0.5})
    gold = module.gold(made)
    total, count = 0.0, 0
    for number, steps in enumerate(made.targets.lengths.tolist()):
        for step in range(steps):
            places = gold[number, step].nonzero().flatten().tolist()
            if not places:  # a space, and the end
                continue
            count += 1
            for place in range(weights.shape[2]):
                given, weight = (place in places) / len(places), float(weights[number, step, place])
                total += -given * math.log(max(weight, 1e-300)) if "entropy" in kind else (weight - given) ** 2
    assert found == pytest.approx(total / count)
