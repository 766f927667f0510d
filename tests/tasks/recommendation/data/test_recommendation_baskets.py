"""The planted baskets: each choice depends on one past item, which a mean over the history does not reveal."""

import numpy as np
import pytest
import torch
from recommendation_cases import data_of
from torch.nn import functional as F
from torchmetrics.functional.classification import binary_auroc

from zoo.attention import ActivationUnit, AttentionFactory, Constant, Uniform, Unnormalized
from zoo.errors import ConfigError
from zoo.tasks.recommendation.ctr import sample_candidates
from zoo.tasks.recommendation.data.interaction_log import Log
from zoo.tasks.recommendation.models.din import DIN
from zoo.tasks.recommendation.ranking.protocol import Protocol
from zoo.tasks.recommendation.synthetic_baskets import fill

SMALL = {"users": 400, "items": 60, "first": 5, "size": 16, "noise": 0.2}


def baskets(log: Log) -> np.ndarray:
    return log.items.reshape(len(log.user_names), -1)


def partners(log: Log) -> np.ndarray:
    """Reads the partner of each item from its title."""
    assert log.titles is not None
    return np.array([int(title.rsplit(" ", 1)[1].rstrip(")")) for title in log.titles])


def test_equal_arguments_give_equal_baskets() -> None:
    one, same, other = fill(**SMALL), fill(**SMALL), fill(**SMALL, seed=1)
    for name in ("items", "offsets", "gold"):
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert one.titles == same.titles != other.titles
    assert one.items[:50].tolist() != other.items[:50].tolist()


def test_no_item_is_in_a_basket_twice() -> None:
    assert all(len(set(basket)) == 16 for basket in baskets(fill(**SMALL)).tolist())


def test_partners_stand_in_one_circle() -> None:
    partner = partners(fill(**SMALL))
    met, item = set(), 0
    while item not in met:
        met.add(item)
        item = int(partner[item])
    assert len(met) == 60


def test_gold_is_the_item_that_the_next_one_answers() -> None:
    log = fill(**SMALL)
    partner, gold = partners(log), log.gold.reshape(-1, 16)
    answered = []
    for basket, back in zip(baskets(log).tolist(), gold.tolist(), strict=True):
        assert back[-1] == -1
        for place in range(15):
            calls = [past for past in range(place + 1) if partner[basket[past]] == basket[place + 1]]
            assert back[place] == (place - calls[0] if calls else -1)
            if place >= 4:
                answered.append(bool(calls))
    assert np.mean(answered) == pytest.approx(0.8 + 0.2 * 8 / 50, abs=0.03)  # any item may be a partner too


def test_without_noise_every_choice_answers_one() -> None:
    gold = fill(**{**SMALL, "noise": 0.0}).gold.reshape(-1, 16)
    assert (gold[:, 4:-1] >= 0).all()


def test_each_waiting_item_is_as_likely_and_none_stands_out() -> None:
    log = fill(users=6000, items=200, first=10, size=20, noise=0.0)
    gold = log.gold.reshape(-1, 20)[:, 9]
    shares = np.bincount(gold, minlength=10) / len(gold)  # share of each distance among the first ten items
    np.testing.assert_allclose(shares, 0.1, rtol=0.2)
    counts = np.bincount(baskets(log)[:, -1], minlength=200)
    assert counts.max() < 2 * 6000 / 200


def test_who_knows_the_partners_ranks_as_well_as_can_be() -> None:
    """The best possible HR@10 with the defaults, where about thirteen partners are missing in each basket."""
    log = fill(users=4000)
    partner, found = partners(log), baskets(log)
    inside = np.zeros((4000, 500), dtype=bool)
    np.put_along_axis(inside, found[:, :-1], True, 1)
    waiting = (~np.take_along_axis(inside, partner[found[:, :-1]], 1)).sum(1)
    decided = log.gold.reshape(4000, -1)[:, -2] >= 0
    assert (decided * np.minimum(1, 10 / waiting)).mean() == pytest.approx(0.61, abs=0.02)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"users": 0}, "users is to be a whole number of at least 1"),
        ({"first": 0}, "first is to be a whole number of at least 1"),
        ({"size": 12}, "13 items or more"),
        ({"items": 32}, r"more than data\.size=32"),
        ({"noise": 1.0}, "noise is to be a number of at least 0 and below 1"),
    ],
)
def test_what_cannot_be_made_is_refused(options: dict, words: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=words):
        fill(**options)


def auc(attend: AttentionFactory, log: Log, epochs: int) -> float:
    """Trains a small DIN and returns its AUC on validation."""
    torch.manual_seed(0)
    data = data_of(log, max_epochs=epochs, batch_size=32, length=int(log.lengths.max()))
    net = DIN(items=len(log.item_names), attend=attend, dim=16, hidden=(40, 20))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    loader = data.train_dataloader()
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for users in loader:
            candidates = sample_candidates(users, targets=None, negatives=3)
            labels = torch.zeros(len(candidates.items))
            labels[::4] = 1.0
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(net(users, candidates), labels).backward()
            optimizer.step()
    (users,) = data_of(log, batch_size=10_000, length=99).loader("val")
    others = Protocol(negatives=4).candidates(users)
    with torch.no_grad():
        scores = net.eval().scores(users, torch.cat([users.held_out[:, None], others], 1))
    labels = torch.zeros_like(scores, dtype=torch.long)
    labels[:, 0] = 1
    return float(binary_auroc(scores.sigmoid().flatten(), labels.flatten()))


def test_attention_of_each_candidate_finds_the_item_and_a_mean_does_not() -> None:
    log = fill(users=1000, items=60, first=6, size=16, noise=0.1)
    target = AttentionFactory(score=ActivationUnit, normalizer=Unnormalized)
    uniform = AttentionFactory(score=Constant, normalizer=Uniform)
    found, guessed = (auc(attend, log, epochs=5) for attend in (target, uniform))
    assert found > guessed + 0.1
