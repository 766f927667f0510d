"""Training and evaluation of next-item prediction, compared with loops."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.attention import AttentionFactory, ScaledDot, Softmax
from zoo.errors import ConfigError
from zoo.optim import OptimizerConfig
from zoo.tasks.recommendation.batch import Catalogue, SequenceBatch
from zoo.tasks.recommendation.losses import BCE, FullSoftmax
from zoo.tasks.recommendation.models.sasrec import SASRec
from zoo.tasks.recommendation.next_item import NextItemTask
from zoo.tasks.recommendation.ranking.protocol import Protocol

ITEMS, LENGTH = 30, 8


def module(**options: Any) -> NextItemTask:
    torch.manual_seed(0)
    attend = AttentionFactory(score=ScaledDot, normalizer=Softmax)
    made = NextItemTask(
        net=partial(SASRec, attend=attend, dim=16, dropout=0.0),
        optimization=OptimizerConfig(optimizer=partial(torch.optim.Adam, lr=0.01)),
        items=ITEMS,
        length=LENGTH,
        **{"loss": FullSoftmax(), "protocol": Protocol(ks=(1, 10)), **options},
    )
    made.log = made.log_dict = lambda *_, **__: None  # type: ignore[method-assign, assignment]
    return made


def batch(lengths: tuple[int, ...] = (3, 1, 8, 5), split: str = "test") -> SequenceBatch:
    draw = torch.Generator().manual_seed(1)
    total = sum(lengths)
    items = torch.randint(ITEMS, (total,), generator=draw)
    seen = [each.unique() for each in items.split(lengths)]
    return SequenceBatch(
        items=items,
        lengths=torch.tensor(lengths),
        targets=torch.randint(ITEMS, (total,), generator=draw),
        held_out=torch.randint(ITEMS, (len(lengths),), generator=draw),
        seen=torch.cat(seen),
        seen_lengths=torch.tensor([len(each) for each in seen]),
        ids=tuple(f"user {number}" for number in range(len(lengths))),
        splits=(split,) * len(lengths),
        catalogue=Catalogue([f"item {n}" for n in range(ITEMS)], None, torch.arange(ITEMS)),
    )


def logged(made: NextItemTask) -> dict[str, float]:
    found: dict[str, float] = {}
    made.log_dict = lambda values, *_, **__: found.update({k: float(v) for k, v in values.items()})  # type: ignore[method-assign, assignment]
    made.on_test_epoch_end()
    return found


def test_the_loss_is_the_mean_over_the_targets_that_are_known() -> None:
    made, given = module(), batch()
    targets = given.targets.clone()
    targets[[0, 4, 9]] = -1
    given = replace(given, targets=targets)
    hidden = made(given)
    losses = [
        F.cross_entropy(made.net.items.weight @ hidden[place], targets[place])
        for place in range(len(targets))
        if targets[place] >= 0
    ]
    torch.testing.assert_close(made.training_step(given, 0), torch.stack(losses).mean())


def test_figures_equal_those_of_a_loop() -> None:
    made, given = module().eval(), batch()
    with torch.no_grad():
        made.test_step(given, 0)
        found = logged(made)
        hidden, ends = made(given), given.ends.tolist()
        ranks = []
        for user, history in enumerate(given.items.split(given.lengths.tolist())):
            scores = made.net.items.weight @ hidden[ends[user] - 1]
            wanted = int(given.held_out[user])
            others = [i for i in range(ITEMS) if i != wanted and i not in history.tolist()]
            ranks.append(sum(bool(scores[i] >= scores[wanted]) for i in others))
    assert found["test/hr@10"] == pytest.approx(sum(rank < 10 for rank in ranks) / len(ranks))
    ndcg = sum(1 / math.log2(rank + 2) for rank in ranks if rank < 10) / len(ranks)
    assert found["test/ndcg@10"] == pytest.approx(ndcg)
    assert {"test/coverage@10", "test/popularity_hr@1", "test/mrr"} <= set(found)


def test_a_model_that_scores_all_items_alike_is_last() -> None:
    made = module().eval()
    torch.nn.init.zeros_(made.net.items.weight)
    with torch.no_grad():
        made.test_step(batch(), 0)
    assert logged(made)["test/hr@10"] == 0.0


def test_pointing_is_of_the_last_position() -> None:
    made, given = module().eval(), batch()
    gold = torch.full_like(given.items, -1)
    with torch.no_grad():
        found = made.explain(given).weights[:, 0, 0]
        heaviest = found.argmax(1)
        gold[given.last] = given.lengths - 1 - heaviest  # so far back
        made.test_step(replace(given, gold=gold), 0)
        assert made.pointing.compute() == 1.0
        made.pointing.reset()
        gold[given.last] = torch.where(given.lengths > 1, (gold[given.last] + 1) % given.lengths, -1)
        made.test_step(replace(given, gold=gold), 0)
        assert made.pointing.compute() == 0.0
    torch.testing.assert_close(found.sum(1), torch.ones(len(given)))


def test_outputs_do_not_depend_on_what_they_must_not() -> None:
    made, given = module().eval(), batch()
    invariants = made.invariants(given)
    assert {each.part for each in invariants} == {"other users of the batch", "later items"}
    for each in invariants:
        torch.testing.assert_close(each.kept(made(each.batch)), each.kept(made(given)))
        assert not torch.equal(made(each.batch), made(given))


def test_a_step_learns() -> None:
    made, given = module(loss=BCE(negatives=3)), batch()
    optimizer = torch.optim.Adam(made.parameters(), lr=0.01)
    losses: list[Tensor] = []
    for _ in range(60):
        optimizer.zero_grad()
        losses.append(made.training_step(given, 0))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1].item() < 0.5 * losses[0].item()


def test_bad_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="add 10"):
        module(protocol=Protocol(ks=(1, 5)))
    with pytest.raises(ConfigError, match="no number 7"):
        module(explain=7)


def test_positions_of_another_window_keep_their_place_from_the_end() -> None:
    made, old = module(), torch.randn(5, 16)
    before = made.net.position.vectors.detach().clone()
    longer = made.resize_parameter("net.position.vectors", old, before.shape)
    assert longer is not None
    assert torch.equal(longer[-5:], old)
    assert torch.equal(longer[:-5], before[:-5])
    old = torch.randn(20, 16)
    shorter = made.resize_parameter("net.position.vectors", old, before.shape)
    assert shorter is not None
    assert torch.equal(shorter, old[-LENGTH:])
    assert made.resize_parameter("net.items.weight", old, before.shape) is None


def test_beside_sampled_figures_stand_those_of_full_ranking() -> None:
    sampled, full, given = module(protocol=Protocol(ks=(1, 10), negatives=5)).eval(), module().eval(), batch()
    with torch.no_grad():
        for made in (sampled, full):
            made.test_step(given, 0)
    among_few, among_all = logged(sampled), logged(full)
    for name in ("hr@1", "hr@10", "ndcg@10", "mrr"):
        assert among_few[f"test/full_{name}"] == among_all[f"test/{name}"]
        assert among_few[f"test/{name}"] >= among_all[f"test/{name}"]
    assert "full_: full ranking of 30 items" in sampled.protocol()
