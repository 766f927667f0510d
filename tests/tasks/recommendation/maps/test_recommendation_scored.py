"""The scored maps, compared with passes of single users and loops over positions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.attention import (
    AttentionFactory,
    GatedRecurrent,
    LinearAttention,
    MechanismFactory,
    MixerFactory,
    ScaledDot,
    Softmax,
    record,
    sites,
)
from zoo.tasks.recommendation.batch import Catalogue, SequenceBatch
from zoo.tasks.recommendation.maps import attributions as scored_maps
from zoo.tasks.recommendation.maps.attributions import (
    gold_positions,
    group_by_user,
    influence,
    occlude,
    occlusion,
    refusal,
    some_users,
)
from zoo.tasks.recommendation.models.sasrec import SASRec

ITEMS, LENGTH = 20, 12
LENGTHS = (5, 1, 12, 3, 12, 7)
attention = AttentionFactory(score=ScaledDot, normalizer=Softmax)


@pytest.fixture(scope="module")
def batch() -> SequenceBatch:
    torch.manual_seed(3)
    total, users = sum(LENGTHS), len(LENGTHS)
    gold = torch.full((total,), -1)
    ends = torch.tensor(LENGTHS).cumsum(0)
    gold[ends[[0, 2, 5]] - 1] = torch.tensor([2, 11, 0])
    return SequenceBatch(
        items=torch.randint(ITEMS, (total,)),
        lengths=torch.tensor(LENGTHS),
        targets=torch.full((total,), -1),
        held_out=torch.arange(users),
        seen=torch.arange(2 * users - 1),
        seen_lengths=torch.tensor([2, 2, 1, 2, 2, 2]),
        ids=tuple("abcdef"),
        splits=("test",) * users,
        catalogue=Catalogue([f"i{n}" for n in range(ITEMS)], None, torch.arange(ITEMS)),
        gold=gold,
    )


def net_of(attend: Any = attention, **options: Any) -> SASRec:
    torch.manual_seed(0)
    return SASRec(items=ITEMS, length=LENGTH, attend=attend, dim=8, heads=2, **options).double().eval()


def alone(batch: SequenceBatch, user: int) -> SequenceBatch:
    return some_users(batch, torch.tensor([user]))


def scored(net: SASRec, batch: SequenceBatch, items: Tensor) -> Tensor:
    return (net.last(batch)[:, None] * net.items(items)).sum(-1)


def test_the_first_layer_by_hand(batch: SequenceBatch) -> None:
    """softmax(q k / sqrt(d)) of the last position, from the layer's own projections, head by head."""
    net = net_of()
    layer: Any = net.layers[0]
    found = influence(net, batch, 0)
    x = net.items.weight * 8**0.5
    for user, length in enumerate(LENGTHS):
        items = alone(batch, user).items
        rows = x[items] + net.position(torch.zeros(1, LENGTH, 8).double())[0, LENGTH - length :]  # type: ignore[misc]
        query, key = layer.mixer.query(layer.mixed(rows))[-1].detach(), layer.mixer.key(rows).detach()
        by_head = []
        for head in (slice(0, 4), slice(4, 8)):
            scores = [sum(float(q) * float(k) for q, k in zip(query[head], row[head], strict=True)) / 2 for row in key]
            by_head.append(torch.tensor(scores).softmax(0))
        expected = torch.stack(by_head).mean(0)
        torch.testing.assert_close(found[batch.users == user], expected.float(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("how", [0, -1, "mean", "rollout"])
@pytest.mark.parametrize("norm", ["paper", "pre"])
def test_each_user_has_the_map_of_its_own(batch: SequenceBatch, how: Any, norm: Any) -> None:
    net = net_of(norm=norm)
    found = influence(net, batch, how)
    for user, length in enumerate(LENGTHS):
        own = influence(net, alone(batch, user), how)
        torch.testing.assert_close(found[batch.users == user], own, atol=1e-6, rtol=1e-5)
        assert len(own) == length
        assert float(own.sum()) == pytest.approx(1.0, abs=1e-6)


def test_mean_and_rollout_by_loops(batch: SequenceBatch) -> None:
    net = net_of()
    one = alone(batch, 5)
    with torch.no_grad(), record(net) as maps:
        net(one)
    layers = [each.weights[0].mean(0) for each in maps.values()]
    torch.testing.assert_close(influence(net, one, "mean"), (layers[0][-1] + layers[1][-1]).float() / 2)
    mixed = [0.5 * weights + 0.5 * torch.eye(7).double() for weights in layers]
    expected = [
        sum(float(mixed[1][-1, middle] * mixed[0][middle, key]) for middle in range(7)) for key in range(7)
    ]  # rows sum to 1 already
    torch.testing.assert_close(influence(net, one, "rollout"), torch.tensor(expected), atol=1e-6, rtol=1e-5)


def test_occlusion_by_loops(batch: SequenceBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scored_maps, "ROWS", 20)  # many pieces
    net = net_of()
    items = torch.randint(ITEMS, (len(LENGTHS), 3), generator=torch.Generator().manual_seed(1))
    found = occlusion(partial(scored, net), batch, items)
    first, second, spare = scored_maps.replacements(batch.catalogue.counts).tolist()
    assert len({first, second, spare}) == 3
    position = 0
    for user, length in enumerate(LENGTHS):
        one = alone(batch, user)
        before = scored(net, one, items[user : user + 1])
        for at in range(length):
            falls = []
            for other in (first, second):
                history = one.items.clone()
                history[at] = spare if int(history[at]) == other else other
                falls.append(before - scored(net, _with(one, history), items[user : user + 1]))
            torch.testing.assert_close(found[position], (sum(falls) / 2)[0].detach())
            position += 1


def _with(batch: SequenceBatch, items: Tensor) -> SequenceBatch:
    return replace(batch, items=items)


def test_an_item_that_is_there_is_not_put_in_its_own_place(batch: SequenceBatch) -> None:
    """Otherwise a history of replacements only would seem to have no influence."""
    other = int(scored_maps.replacements(batch.catalogue.counts)[0])
    one = _with(alone(batch, 3), torch.full((3,), other))
    asked: list[Tensor] = []

    def score(some: SequenceBatch, items: Tensor) -> Tensor:
        asked.append(some.items)
        return torch.zeros(len(some), 1)

    occlusion(score, one, torch.zeros(1, 1, dtype=torch.int64))
    assert all((each.view(3, 3) == other).sum() == 6 for each in asked[1:])


def test_shares_of_occlusion_are_of_what_lifts(batch: SequenceBatch) -> None:
    net = net_of()
    items = torch.arange(len(LENGTHS))[:, None]
    falls = occlusion(partial(scored, net), batch, items)[:, 0]
    shares = occlude(partial(scored, net), batch, items)
    assert (shares[falls <= 0] == 0).all()
    for user in range(len(LENGTHS)):
        lifts = falls[batch.users == user].clamp(min=0)
        torch.testing.assert_close(shares[batch.users == user] * lifts.sum(), lifts)


def test_what_has_no_weights_says_so(batch: SequenceBatch) -> None:
    net = net_of(MixerFactory(GatedRecurrent))
    for how in (0, "mean", "rollout"):
        why_not = refusal(net, how)  # type: ignore[arg-type]
        assert why_not is not None
        assert "GatedRecurrent, which has no weights; write occlusion" in why_not
        with pytest.raises(ValueError, match="has no weights"):
            influence(net, batch, how)  # type: ignore[arg-type]
    assert refusal(net, "occlusion") is None
    falls = occlusion(partial(scored, net), batch, torch.zeros(len(LENGTHS), 1, dtype=torch.int64))
    assert falls.abs().max() > 0


def test_refusals() -> None:
    net = net_of()
    assert len(sites(net)) == 2
    assert [refusal(net, how) for how in (0, 1, -1, -2, "mean", "rollout")] == [None] * 6  # type: ignore[arg-type]
    assert refusal(net, 2) == "the net has 2 layers, there is no number 2"
    assert "there is no such explanation" in str(refusal(net, "rolout"))  # type: ignore[arg-type]


def test_linear_attention_has_the_map_that_it_amounts_to(batch: SequenceBatch) -> None:
    net = net_of(MechanismFactory(LinearAttention))
    found = influence(net, batch, 1)
    assert refusal(net, 1) is None
    sums = torch.zeros(len(LENGTHS)).index_add(0, batch.users, found)
    torch.testing.assert_close(sums, torch.ones(len(LENGTHS)))


def test_a_map_has_one_query_and_no_padding(batch: SequenceBatch) -> None:
    values = torch.arange(1.0, len(batch.items) + 1)
    found = group_by_user(values, batch, "layer 0")
    assert found.weights.shape == (len(LENGTHS), 1, 1, 12)
    start = 0
    for user, length in enumerate(LENGTHS):
        assert found.weights[user, 0, 0].tolist() == [*range(start + 1, start + length + 1)] + [0.0] * (12 - length)
        start += length


def test_gold_positions(batch: SequenceBatch) -> None:
    found = gold_positions(batch)
    assert found is not None
    assert [found[batch.users == user].nonzero().flatten().tolist() for user in range(6)] == [[2], [], [0], [], [], [6]]
    assert gold_positions(replace(batch, gold=None)) is None


def test_chosen_users_keep_all_that_is_theirs(batch: SequenceBatch) -> None:
    some = some_users(batch, torch.tensor([5, 1]))
    assert some.ids == ("f", "b")
    assert some.items.tolist() == [*batch.items[batch.users == 5].tolist(), *batch.items[batch.users == 1].tolist()]
    assert some.seen.tolist() == [9, 10, 2, 3]
    assert (some.seen_lengths.tolist(), some.held_out.tolist()) == ([2, 2], [5, 1])
