"""A user without some past items: others stand in their place, one after another."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from recommendation_cases import users
from torch import Tensor, nn

from zoo.attention import ActivationUnit, AttentionFactory, ScaledDot, Softmax, Unnormalized
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.tasks.recommendation.ctr import CTRTask
from zoo.tasks.recommendation.maps import perturbation
from zoo.tasks.recommendation.maps.attributions import replacements
from zoo.tasks.recommendation.maps.perturbation import PerturbableHistory
from zoo.tasks.recommendation.models.din import DIN
from zoo.tasks.recommendation.models.sasrec import SASRec
from zoo.tasks.recommendation.next_item import NextItemTask
from zoo.tasks.recommendation.ranking.protocol import Protocol
from zoo.tasks.recommendation.task import Recommender

FILES = Path(__file__).parents[3] / "checkpoints" / "files"
ITEMS, LENGTH = 12, 8
SOFTMAX = AttentionFactory(score=ScaledDot, normalizer=Softmax)
UNIT = AttentionFactory(score=partial(ActivationUnit, hidden=[4]), normalizer=Unnormalized)


@pytest.fixture(params=["next_item", "click"])
def module(request: pytest.FixtureRequest) -> Recommender:
    torch.manual_seed(0)
    kept: dict[str, Any] = {"optimization": None, "items": ITEMS, "length": LENGTH, "protocol": Protocol()}
    if request.param == "click":
        made: Recommender = CTRTask(net=partial(DIN, attend=UNIT, dim=6, hidden=(5,)), **kept)
        nn.init.normal_(made.net.bias.weight)
    else:
        made = NextItemTask(net=partial(SASRec, attend=SOFTMAX, dim=8, heads=2), loss=nn.Identity(), **kept)
        nn.init.normal_(made.net.items.weight)
    return made.double().eval()


@pytest.fixture
def batch() -> SequenceBatch:
    return users([[3, 1, 4, 1, 5, 9]], items=ITEMS, held_out=[7], counts=list(range(ITEMS)))


def test_items_left_out(module: Recommender, batch: SequenceBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perturbation, "ROWS", 20)  # three variants at a time
    found = PerturbableHistory(module, batch)
    torch.testing.assert_close(found.attention, module.shares(batch))
    first, second, spare = replacements(batch.catalogue.counts).tolist()
    keep = torch.rand(8, 6, generator=torch.Generator().manual_seed(0)) < 0.5
    keep[0] = True
    answer = module.asked_about(batch)
    if isinstance(module, CTRTask):
        assert answer.tolist() == [7]
    for row, score in zip(keep.tolist(), found.score(keep), strict=True):
        by_loop = []
        for other in (first, second):
            kept = zip(batch.items.tolist(), row, strict=True)
            items = [item if left else (spare if item == other else other) for item, left in kept]
            by_loop.append(module.log_probability(users([items], items=ITEMS), answer).exp().item())
        assert float(score) == pytest.approx(sum(by_loop) / 2, abs=1e-12)


def test_probabilities_are_those_of_the_loss(module: Recommender, batch: SequenceBatch) -> None:
    everything = torch.arange(ITEMS)
    scores = module.score_own(batch, everything[None])[0]
    expected = scores.sigmoid() if isinstance(module, CTRTask) else scores.softmax(-1)
    for item in everything:
        torch.testing.assert_close(module.log_probability(batch, item[None]).exp(), expected[item][None])


def test_the_gradient_is_that_of_scaled_items(module: Recommender, batch: SequenceBatch) -> None:
    found = PerturbableHistory(module, batch)
    gradient = found.gradient()

    def passed(position: int, scale: float) -> float:
        def scaled(table: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor | None:
            if given[0] is not batch.items:
                return None
            return out * torch.ones(len(out), 1, dtype=out.dtype).index_fill(0, torch.tensor([position]), scale)

        handle = module.net.items.register_forward_hook(scaled)
        value = module.log_probability(batch, found.answer).item()
        handle.remove()
        return value

    for position in range(6):
        slope = (passed(position, 1 + 1e-6) - passed(position, 1 - 1e-6)) / 2e-6
        assert gradient[position].item() == pytest.approx(abs(slope), rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("checkpoint", ["format2/sasrec", "format1/din", "format1/sasrec_recurrent"])
def test_users_by_the_command(cli: Any, checkpoint: str) -> None:
    done = cli("maps", FILES / f"{checkpoint}.ckpt", "--out", "maps", "--pictures", 1, "--faithfulness", 4)
    if checkpoint.endswith("recurrent"):
        assert done.code == 2
        assert "its attention has no weights" in done.err
        return
    assert done.code == 0, done.err
    assert "faithfulness over 4 users (mean ± standard error)" in done.out
    assert pd.read_csv("maps/faithfulness.csv").id.nunique() == 4
