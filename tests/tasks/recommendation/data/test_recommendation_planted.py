"""The planted sessions: the last item selects the item whose partner comes next, and no simpler rule predicts it."""

from collections import Counter

import numpy as np
import pytest
import torch
from recommendation_cases import data_of
from scipy.stats import chi2_contingency
from torch.nn import functional as F

from zoo.attention import AttentionFactory, Constant, Rotary, ScaledDot, Softmax, Uniform
from zoo.errors import ConfigError
from zoo.tasks.recommendation.data.interaction_log import Log
from zoo.tasks.recommendation.models.sasrec import SASRec
from zoo.tasks.recommendation.synthetic import limit, plant

SMALL = {"users": 400, "items": 40, "reach": 5, "shortest": 8, "longest": 14, "noise": 0.2}


@pytest.fixture(scope="module")
def large() -> Log:
    return plant(users=3000, items=64, reach=8, shortest=11, longest=24, noise=0.2)


def sessions(log: Log) -> list[tuple[list[int], list[int]]]:
    """Returns the items and the gold of each session."""
    assert log.gold is not None
    bounds = list(zip(log.offsets[:-1].tolist(), log.offsets[1:].tolist(), strict=True))
    return [(log.items[start:end].tolist(), log.gold[start:end].tolist()) for start, end in bounds]


def reaches(log: Log) -> list[int]:
    assert log.titles is not None
    return [int(title.split("(")[1].split()[0]) for title in log.titles]


def pairing(log: Log) -> dict[int, int]:
    """Returns the item that follows wherever the gold is an item."""
    votes: dict[int, Counter[int]] = {}
    for items, gold in sessions(log):
        for position, far in enumerate(gold):
            if far >= 0:
                votes.setdefault(items[position - far], Counter())[items[position + 1]] += 1
    assert all(len(each) == 1 for each in votes.values())  # gold is never wrong
    return {item: next(iter(each)) for item, each in votes.items()}


def batch(log: Log, split: str, size: int = 10_000):
    data = data_of(log, batch_size=size, length=int(log.lengths.max()))
    return next(iter(data.loader(split)))


def test_equal_arguments_give_equal_sessions() -> None:
    one, same, other = plant(**SMALL), plant(**SMALL), plant(**SMALL, seed=1)
    for name in ("items", "offsets", "gold"):
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert one.titles == same.titles != other.titles
    assert one.items[:50].tolist() != other.items[:50].tolist()


def test_the_next_item_is_the_partner_of_the_one_pointed_to() -> None:
    log = plant(**{**SMALL, "noise": 0.3})
    back, partner = reaches(log), pairing(log)
    assert sorted(partner) == sorted(partner.values()) == list(range(40))  # one to one
    decided = told = 0
    for items, gold in sessions(log):
        assert 8 <= len(items) <= 14
        assert gold[-1] == -1
        for place in range(len(items) - 1):
            source = place - back[items[place]]
            expected = source >= 0 and partner[items[source]] == items[place + 1]
            assert gold[place] == (back[items[place]] if expected else -1)
            told += source >= 0
            decided += expected
    assert decided / told == pytest.approx(0.7 + 0.3 / 40, abs=0.03)


def test_without_noise_every_held_out_item_is_decided() -> None:
    log = plant(**{**SMALL, "noise": 0.0})
    assert limit(log, "val") == limit(log, "test") == 1.0


def test_the_limit_is_what_the_rule_scores_on_the_splits() -> None:
    log = plant(**SMALL)
    back, partner = reaches(log), pairing(log)
    for split in ("val", "test"):
        users = batch(log, split)
        right = 0
        for user in range(len(users)):
            end = int(users.last[user])
            source = int(users.items[end - back[int(users.items[end])]])
            right += partner[source] == int(users.held_out[user])
        assert right / len(users) == pytest.approx(limit(log, split), abs=1e-9)
        assert limit(log, split) == pytest.approx(0.8, abs=0.06)


def test_gold_of_a_batch_lies_in_its_window() -> None:
    log = plant(**SMALL)
    partner = pairing(log)
    users = batch(log, "test")
    assert users.gold is not None
    gold = users.gold[users.last]
    places = (users.last - gold)[gold >= 0]
    assert (places >= users.starts[gold >= 0]).all()
    expected = [partner[int(item)] for item in users.items[places]]
    assert users.held_out[gold >= 0].tolist() == expected


def test_what_is_held_out_is_not_learned() -> None:
    log = plant(**SMALL)
    train, val, test = (batch(log, split) for split in ("train", "val", "test"))
    for user, (items, _) in enumerate(sessions(log)):
        learned = train.targets[train.starts[user] : train.ends[user]].tolist()
        assert learned == items[1:-2]
        assert [int(val.held_out[user]), int(test.held_out[user])] == items[-2:]


@pytest.mark.parametrize("seed", range(6))
def test_no_distance_and_no_item_stands_out(seed: int) -> None:
    """Distances are about equally likely; with one pairing and few items, sessions slightly favour some of them."""
    log = plant(users=3000, items=64, reach=8, shortest=11, longest=24, noise=0.2, seed=seed)
    assert log.gold is not None
    far = log.gold[log.offsets[1:] - 2]
    shares = np.bincount(far[far > 0], minlength=9)[1:] / (far > 0).sum()
    np.testing.assert_allclose(shares, 1 / 8, rtol=1 / 3)
    assert np.bincount(log.items[log.offsets[1:] - 1], minlength=64).max() < 2 * 3000 / 64


def test_items_that_decide_come_from_the_distribution_of_the_others(large: Log) -> None:
    assert large.gold is not None
    ends = large.offsets[1:] - 2
    far = large.gold[ends]
    ends, far = ends[far > 0], far[far > 0]
    shift = np.random.default_rng(0).integers(1, 8, size=len(far))
    other = (far - 1 + shift) % 8 + 1  # another distance from the same range
    table = [np.bincount(large.items[ends - each], minlength=64) for each in (far, other)]
    assert chi2_contingency(table).pvalue > 0.01


def test_a_bag_of_items_does_not_tell_the_next_one(large: Log) -> None:
    """Naive Bayes on the set of the last items, with probabilities counted in training."""
    follows = np.ones((64, 64))
    for items, _ in sessions(large):
        for position in range(8, len(items) - 3):
            follows[items[position - 8 : position + 1], items[position + 1]] += 1
    score = np.log(follows / follows.sum(1, keepdims=True))
    found = [score[items[-10:-1]].sum(0).argmax() == items[-1] for items, _ in sessions(large)]
    assert np.mean(found) < 1 / 8 + 0.1 < limit(large, "test") - 0.5


def test_the_most_frequent_items_are_no_answer(large: Log) -> None:
    popular = np.bincount(large.items, minlength=64).argmax()
    assert (large.items[large.offsets[1:] - 1] == popular).mean() < 0.04


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"users": 0}, "users is to be a whole number of at least 1"),
        ({"reach": 0}, "reach is to be a whole number of at least 1"),
        ({"items": 10, "reach": 11}, r"to data\.items=10"),
        ({"shortest": 12}, "13 items or more"),
        ({"longest": 19}, r"not below data\.shortest=20"),
        ({"noise": 1.0}, "noise is to be a number of at least 0 and below 1"),
        ({"noise": -0.1}, "noise is to be a number of at least 0 and below 1"),
    ],
)
def test_what_cannot_be_made_is_refused(options: dict, words: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=words):
        plant(**options)


def hit_rate(attend: AttentionFactory, log: Log, epochs: int) -> float:
    """Trains a small SASRec and returns its HR@1 on validation."""
    torch.manual_seed(0)
    data = data_of(log, max_epochs=epochs, batch_size=64, length=int(log.lengths.max()))
    net = SASRec(**data.sizes(), attend=attend, dim=32, layers=2, dropout=0.0, position=None, relative=Rotary)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    loader = data.train_dataloader()
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for users in loader:
            optimizer.zero_grad()
            F.cross_entropy(net.scores(net(users)), users.targets).backward()
            optimizer.step()
    users = batch(log, "val")
    with torch.no_grad():
        return float((net.scores(net.eval().last(users)).argmax(1) == users.held_out).float().mean())


def test_attention_finds_the_item_and_a_mean_does_not() -> None:
    log = plant(users=1000, items=30, reach=4, shortest=10, longest=14, noise=0.1)
    softmax = AttentionFactory(score=ScaledDot, normalizer=Softmax)
    uniform = AttentionFactory(score=Constant, normalizer=Uniform)
    found, guessed = (hit_rate(attend, log, epochs=3) for attend in (softmax, uniform))
    assert found > guessed + 0.1
