"""Ranks, lists and metrics, compared with loops over users and items."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recommendation_cases import numbers, users

from zoo.data.loader import hash_seed
from zoo.errors import ConfigError, DataError
from zoo.tasks.recommendation.batch import UNKNOWN
from zoo.tasks.recommendation.ranking import ranks as ranking
from zoo.tasks.recommendation.ranking.metrics import RankMetrics
from zoo.tasks.recommendation.ranking.protocol import Protocol


def by_hand(scores, held_out, excluded, *, items=None):
    """Returns a user's rank and items, best first; an item with the held-out item's score counts as better."""
    allowed = [i for i in range(len(scores) if items is None else items) if i == held_out or i not in excluded]
    better = [i for i in allowed if i != held_out and scores[i] >= scores[held_out]]
    order = sorted(allowed, key=lambda i: -scores[i])
    return (-1 if held_out < 0 else len(better)), order


def of(scores):
    return lambda items: scores[:, items]


@st.composite
def batches(draw):
    """Generates scores with many ties, and a batch."""
    items, count = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    an_item = st.integers(0, items - 1)
    windows = draw(st.lists(st.lists(an_item, min_size=1, max_size=4), min_size=count, max_size=count))
    seen = draw(st.lists(st.lists(an_item, max_size=9), min_size=count, max_size=count))
    held_out = draw(st.lists(st.integers(-1, items - 1), min_size=count, max_size=count))
    row = st.lists(st.integers(-2, 2), min_size=items, max_size=items)
    scores = torch.tensor(draw(st.lists(row, min_size=count, max_size=count))).float()
    counts = draw(st.lists(st.integers(0, 3), min_size=items, max_size=items))
    return scores, users(windows, items=items, seen=seen, held_out=held_out, counts=counts)


def chosen(batch):
    """Returns the set of each user's items that full ranking leaves out."""
    found = [set() for _ in batch.ids]
    for owners, items in ((batch.users, batch.items), (batch.seen_users, batch.seen)):
        for user, item in zip(owners.tolist(), items.tolist(), strict=True):
            found[user].add(item)
    return found


@settings(max_examples=40)
@given(batches(), st.sampled_from([1, 8, 30, 10**9]), st.sampled_from(["leave_out", "rank"]))
def test_ranks_and_lists_are_those_of_a_loop(case, memory, seen):
    scores, batch = case
    protocol = Protocol(ks=(1, 3), seen=seen, memory=memory)
    found = protocol.rank(of(scores), batch)
    for user, excluded in enumerate(chosen(batch)):
        held_out = int(batch.held_out[user])
        rank, order = by_hand(scores[user].tolist(), held_out, excluded if seen == "leave_out" else set())
        assert found.ranks[user] == rank
        listed = [item for item in found.top[user].tolist() if item >= 0]
        assert len(listed) == len(set(listed)) == min(3, len(order))
        assert set(listed) <= set(order)  # which of equal ones is listed is free, their scores are not
        best = [float(scores[user, item]) for item in order[: len(listed)]]
        assert [float(scores[user, item]) for item in listed] == best == found.scores[user, : len(listed)].tolist()
    assert protocol.rank(of(scores), batch, lists=False).ranks.equal(found.ranks)


@settings(max_examples=25)
@given(batches(), st.sampled_from(["leave_out", "rank"]))
def test_popularity_is_a_model_that_scores_by_counts(case, seen):
    _, batch = case
    protocol = Protocol(seen=seen)
    counts = batch.catalogue.counts.float().expand(len(batch), -1)
    assert protocol.popularity(batch).equal(protocol.rank(of(counts), batch).ranks)


def test_blocks_of_many_items_and_users_agree_with_one(monkeypatch):
    torch.manual_seed(0)
    items, count = 5000, 7
    hidden, vectors = torch.randn(count, 8), torch.randn(items, 8)
    windows = [torch.randint(items, (300,)).tolist() for _ in range(count)]
    batch = users(windows, items=items, held_out=torch.randint(items, (count,)).tolist())
    calls = []

    def score(wanted):
        calls.append(len(wanted))
        return hidden @ vectors[wanted].T

    whole = Protocol(ks=(50,)).rank(score, batch)
    assert calls == [items]
    monkeypatch.setattr(ranking, "_MOST", 333)
    blocks = Protocol(ks=(50,)).rank(score, batch)
    assert len(calls) == 1 + 1 + 16  # the held-out items, then the blocks
    assert blocks.ranks.equal(whole.ranks)
    assert blocks.top.equal(whole.top)
    assert max(calls[1:]) == 333


def test_a_block_of_scores_stays_within_memory():
    for count in (1, 128, 5000):
        for items in (10, 3416, 10**6):
            size = ranking._block(count, items, ranking.MEMORY)
            assert 1 <= size <= items
            assert 4 * count * size <= ranking.MEMORY
    assert ranking._block(5000, 10**6, 1) == 1
    assert ranking._block(128, 3416, ranking.MEMORY) == 3416


def test_a_model_that_scores_all_items_alike_is_last():
    batch = users([[0], [1]], items=6, held_out=[3, 1])
    found = Protocol().rank(lambda items: torch.zeros(2, len(items)), batch)
    assert found.ranks.tolist() == [
        4,
        5,
    ]  # the second user's held-out item was chosen before, and is ranked all the same
    sampled = Protocol(negatives=50).rank(lambda items: torch.zeros(2, len(items)), batch)
    assert sampled.ranks.min() > 30


@pytest.mark.parametrize("memory", [1, 10**9])
@pytest.mark.parametrize("negatives", [None, 30])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_score_that_is_no_finite_number_is_refused(memory, negatives, value):
    batch = users([[0], [1]], items=4, held_out=[3, 2])
    scores = torch.zeros(2, 4)
    scores[1, 2 if value == math.inf else 3] = value
    with pytest.raises(ValueError, match="NaN or infinite"):
        Protocol(negatives=negatives, memory=memory).rank(of(scores), batch, lists=False)


def test_a_user_who_has_chosen_everything_is_ranked_first_and_recommended_nothing_else():
    batch = users([[0, 1, 2], [0, 1, 2]], items=3, held_out=[1, -1])
    found = Protocol(ks=(3,)).rank(of(torch.tensor([[3.0, 2, 1], [3, 2, 1]])), batch)
    assert found.ranks.tolist() == [0, -1]
    assert found.top.tolist() == [[1, -1, -1], [-1, -1, -1]]
    with pytest.raises(DataError, match="has chosen all 3 items"):
        Protocol(negatives=5).rank(of(torch.zeros(2, 3)), batch)


def test_the_row_of_unknown_items_is_neither_ranked_nor_recommended():
    batch = users([[0, 4]], items=5, held_out=[1], names=["a", "b", "c", "d", UNKNOWN], counts=[1, 2, 3, 1, 99])
    scores = torch.tensor([[9.0, 1, 2, 3, 9]])
    found = Protocol(ks=(5,)).rank(of(scores), batch)
    assert found.ranks.tolist() == [2]
    assert found.top.tolist() == [[3, 2, 1, -1]]
    assert Protocol().popularity(batch).tolist() == [1]
    assert not (Protocol(negatives=300).candidates(batch) == 4).any()


def sampled():
    """Returns fifty users and forty items, of which each user has seen some."""
    torch.manual_seed(3)
    seen = [torch.randperm(40)[: 1 + user % 30].tolist() for user in range(50)]
    held_out = torch.randint(40, (50,)).tolist()
    return seen, held_out


def test_sampled_ranks_are_the_authors():
    seen, held_out = sampled()
    batch = users([each[-1:] for each in seen], items=40, seen=seen, held_out=held_out, counts=range(40))
    protocol = Protocol(ks=(10,), negatives=100, seed=5)
    scores = torch.randn(50, 40)
    candidates = protocol.candidates(batch)
    assert candidates.shape == (50, 100)
    found = protocol.rank(of(scores), batch)
    own = protocol.rank(of(scores), batch, own=lambda items: scores.gather(1, items), lists=False)
    counts = protocol.popularity(batch)
    for user, item in enumerate(held_out):
        drawn = candidates[user].tolist()
        assert not set(drawn) & set(seen[user])
        rank = sum(bool(scores[user, other] >= scores[user, item]) for other in drawn if other != item)
        assert found.ranks[user] == own.ranks[user] == rank
        assert counts[user] == sum(other > item for other in drawn)
    assert own.top.shape == (50, 0)
    assert found.top.equal(Protocol(ks=(10,)).rank(of(scores), batch).top)  # lists are of all items


def test_candidates_do_not_depend_on_the_batch_and_do_on_the_split_and_seed():
    seen, held_out = sampled()
    protocol = Protocol(negatives=20)
    names = [f"user {number}" for number in range(50)]

    def drawn(rows, protocol=protocol, split="test"):
        some = [seen[row] for row in rows]
        batch = users(some, items=40, seen=some, held_out=[held_out[row] for row in rows], split=split,
                      ids=[names[row] for row in rows])  # fmt: skip
        return protocol.candidates(batch)

    whole = drawn(range(50))
    assert torch.cat([drawn([row]) for row in range(50)]).equal(whole)
    assert drawn([7, 3]).equal(whole[[7, 3]])
    assert not drawn(range(50), split="val").equal(whole)
    assert not drawn(range(50), Protocol(negatives=20, seed=1)).equal(whole)


def test_candidates_are_uniform_outside_the_items_of_training():
    """Chi-square test over many users, each of whom has seen item 0 and one other item."""
    count, items = 400, 12
    seen = [[0, 1 + user % 11] for user in range(count)]
    batch = users(seen, items=items, seen=seen, held_out=[5] * count)
    drawn = Protocol(negatives=100).candidates(batch)
    places = torch.stack([  # the number of each candidate among those that its user has not seen
        row - 1 - (row > seen[user][1]).long() for user, row in enumerate(drawn)
    ])  # fmt: skip
    found = places.flatten().bincount(minlength=10).double()
    expected = count * 100 / 10
    assert len(found) == 10
    assert float(((found - expected) ** 2 / expected).sum()) < 9 + 4 * 18**0.5
    first, second = places[:, 0].double(), places[:, 1].double()
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / count**0.5


def test_the_numbers_are_splitmix64():
    """Compares with the authors' C routine, written with Python integers."""
    from zoo.tasks.recommendation.ranking.protocol import _numbers

    seed, expected, state = hash_seed(0, "test", "u"), [], hash_seed(0, "test", "u")
    for _ in range(5):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        x = state
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
        expected.append((x ^ (x >> 31)) >> 1)
    assert _numbers(np.array([seed], dtype=np.uint64), 5).tolist() == [expected]


@settings(max_examples=25)
@given(st.lists(st.integers(-1, 19), min_size=1).filter(lambda ranks: max(ranks) >= 0), st.integers(1, 3))
def test_figures_are_their_definitions(ranks, parts):
    metrics = [RankMetrics((1, 5, 10), 20, lists=False) for _ in range(parts)]
    for number, rank in enumerate(ranks):
        metrics[number % parts].update(torch.tensor([rank]))
    whole = RankMetrics((1, 5, 10), 20, lists=False)
    whole.update(numbers([-1]))
    whole.ranks = sum(each.ranks for each in metrics)  # as processes add them
    found, known = whole.compute(), [rank for rank in ranks if rank >= 0]
    assert found["mrr"] == pytest.approx(np.mean([1 / (rank + 1) for rank in known]))
    for k in (1, 5, 10):
        assert found[f"hr@{k}"] == pytest.approx(np.mean([rank < k for rank in known]))
        gains = [1 / math.log2(rank + 2) if rank < k else 0 for rank in known]
        assert found[f"ndcg@{k}"] == pytest.approx(np.mean(gains))
    assert set(found) == {"mrr", "hr@1", "hr@5", "hr@10", "ndcg@1", "ndcg@5", "ndcg@10"}


def test_coverage_is_the_share_of_items_in_a_list_of_anybody():
    metrics = RankMetrics((1, 2), 8)
    metrics.update(numbers([0, -1]), numbers([3, 1, 4, 1]).view(2, 2))
    metrics.update(numbers([7]), numbers([3, -1]).view(1, 2))
    found = metrics.compute()
    assert found["coverage@1"] == pytest.approx(2 / 8)
    assert found["coverage@2"] == pytest.approx(3 / 8)
    metrics.reset()
    metrics.update(numbers([0]), numbers([5, 6]).view(1, 2))
    assert metrics.compute()["coverage@2"] == pytest.approx(2 / 8)
    with pytest.raises(ValueError, match="coverage is measured of lists of items"):
        metrics.update(numbers([0]))


def test_metrics_fit_the_protocol():
    assert len(Protocol().metrics(3416).ranks) == 3416
    few = Protocol(negatives=100).metrics(30, ks=(10,), lists=False)
    few.update(numbers([100, 0]))  # more negatives than items: they are drawn with replacement
    assert few.compute()["hr@10"] == 0.5


def test_the_protocol_says_what_was_ranked():
    assert Protocol().describe(3416) == "full ranking of 3,416 items, seen items left out"
    assert Protocol(seen="rank").describe(12) == "full ranking of 12 items, seen items ranked too"
    said = Protocol(negatives=100, seed=3).describe(3416)
    assert said.startswith("sampled ranking: the held-out item among 100 uniform negatives outside")
    assert said.endswith("seed 3")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ks": ()}, "model.protocol.ks"),
        ({"ks": (0, 5)}, "each a whole number of at least 1"),
        ({"ks": (5, 1)}, "model.protocol.ks"),
        ({"negatives": 0}, "negatives is to be a whole number of at least 1"),
        ({"seen": "drop"}, "write leave_out or rank"),
        ({"memory": 0}, "memory is to be a whole number of at least 1"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises((ConfigError, ValueError), match=words):
        Protocol(**options)
