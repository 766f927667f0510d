"""The scored map of a recommendation: how much each past item had to do with it.

| how       | what it is                                                                     | of         |
|-----------|--------------------------------------------------------------------------------|------------|
| a number  | the last position's attention in that layer, the average of its heads          | the user   |
| mean      | the average of these over the layers                                           | the user   |
| rollout   | attention of all layers multiplied (Abnar & Zuidema 2020), the last row of it  | the user   |
| occlusion | how far an item's score falls when another stands in the past item's place   | each item |

Attention is what the model looked at before it had any item in mind: all that is recommended to a user has the same.
How far a score falls is of one recommendation, is measured and not read off, and needs no attention: other mixers have
it too. It costs a pass for each past item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from zoo.attention import Attend, AttentionMap, DenseSupport, record, sites
from zoo.attention.ranges import AnyInt
from zoo.attention.weightless.linear import KernelAttention
from zoo.maps.rollout import rollout
from zoo.tasks.packing import Packing
from zoo.tasks.ranges import ranges
from zoo.tasks.recommendation.batch import Histories

How = AnyInt | Literal["mean", "rollout", "occlusion"]
ScoreOf = Callable[[Histories, Int[Tensor, "b k"]], Float[Tensor, "b k"]]
"""Each user's scores of items of its own."""
_STAND_INS = 2
"""On planted sessions the two heaviest items are the cue and what it points at for .99 of the users with one of them,
for all with two (an average embedding: .79; the item taken out: .61)."""
_ROWS = 2**15
"""Positions of histories with an item replaced that go through the net at a time."""


def influence(net: nn.Module, batch: Histories, how: How) -> Float[Tensor, " n"]:
    """Of each position, its share in what comes next for its user, by attention; a user's shares sum to 1.

    A user who attends to nothing (as with a sigmoid in softmax's place may happen) has zeros.
    """
    why_not = refusal(net, how)
    if why_not:
        raise ValueError(f"{how}: {why_not}")
    if how == "occlusion":
        raise ValueError("occlusion is of an item: see occlusion()")
    shares = torch.zeros(len(batch.items), device=batch.items.device)
    for group in Packing(batch.lengths, causal=True).groups:
        users = torch.tensor(group.sequences, device=batch.items.device)
        one = some_users(batch, users)
        with torch.no_grad(), record(net, layers=[how] if isinstance(how, int) else None, implied=True) as found:
            net(one)
        shares[positions(batch, users)] = last_rows(net, attended(found, one), how)
    return shares


def last_rows(net: nn.Module, found: Attended, how: How) -> Float[Tensor, " n"]:
    """The same from what was recorded: of each user the row of its last position, made to sum to 1."""
    names = [list(sites(net))[how]] if isinstance(how, int) else list(found.maps)
    each = [found.maps[name].mean(1) for name in names]
    product = rollout(each) if how == "rollout" else torch.stack(each).mean(0)
    last = found.real.sum(1) - 1
    rows = product[torch.arange(len(last), device=last.device), last]
    total = rows.sum(1, keepdim=True)
    return (rows / total.masked_fill(total == 0.0, 1.0))[found.real]


@torch.no_grad()
def occlusion(score: ScoreOf, batch: Histories, items: Int[Tensor, "b k"]) -> Float[Tensor, "n k"]:
    """Of each position, how far its user's scores of these items fall when another item stands there.

    The mean over two others, drawn by how often they were chosen in training, the same everywhere. The past item is
    replaced and not taken out: that would move those before it. What takes its place is an item, as the model knows
    them: an average of embeddings is no such thing, and normalised it may be mistaken for one.

    Args:
        score: Of users and items.
        batch: The users.
        items: Of each user.
    """
    before = score(batch, items)
    falls = before.new_zeros(len(batch.items), items.shape[1])
    *others, spare = _stand_ins(batch.catalogue.counts).to(items.device)
    for positions in _pieces(batch):
        users = batch.users[positions]
        for other in others:
            # Another than the one that is there.
            instead = torch.where(batch.items[positions] == other, spare, other)
            fall = before[users] - score(_replaced(batch, users, positions, instead), items[users])
            falls[positions] += fall / len(others)
    return falls


def occluded(score: ScoreOf, batch: Histories, items: Int[Tensor, "b 1"]) -> Float[Tensor, " n"]:
    """The same of one item for each user, as shares of what lifts its score: what lowers it has none."""
    lifts = occlusion(score, batch, items)[:, 0].clamp(min=0.0)
    total = lifts.new_zeros(len(batch)).index_add(0, batch.users, lifts)[batch.users]
    return lifts / total.masked_fill(total == 0.0, 1.0)


def map_name(how: How, net: nn.Module) -> str:
    """As the map is called: layer 1, rollout."""
    return f"layer {how % len(sites(net))}" if isinstance(how, int) else how


def refusal(net: nn.Module, how: How) -> str | None:
    """Why a net cannot say this of its recommendations, in one sentence; None where it can."""
    if how == "occlusion":
        return None
    if how not in ("mean", "rollout") and not isinstance(how, int):
        return "there is no such explanation, write the number of a layer, mean, rollout or occlusion"
    names = list(sites(net))
    if isinstance(how, int):
        if not -len(names) <= how < len(names):
            return f"the net has {len(names)} layers, there is no number {how}"
        names = [names[how]]
    for name in names:
        site = net.get_submodule(name)
        if not isinstance(site, (Attend, KernelAttention)):
            return f"{name} is {type(site).__name__}, which has no weights; write occlusion"
    return None


@dataclass(frozen=True, eq=False)
class Attended:
    """Maps of users side by side.

    Args:
        real: What is not padding, which is at the end.
        maps: The weights of each site, (users, heads, queries, keys); zero where a query or key is padding.
    """

    real: Bool[Tensor, "u n"]
    maps: Mapping[str, Float[Tensor, "u h n n"]]


def attended(found: Mapping[str, AttentionMap], batch: Histories) -> Attended:
    """The maps of users of one group of `Packing`, in its order, as matrices.

    Sites without weights have no map. What a mechanism without weights amounts to (linear attention) is its map, if it
    was asked for.
    """
    steps = torch.arange(int(batch.lengths.max()), device=batch.items.device)
    real = steps < batch.lengths[:, None]
    pairs = (real[:, :, None] & real[:, None, :]).unsqueeze(1)
    return Attended(real, {site: each.dense().float() * pairs for site, each in found.items()})


def positions(batch: Histories, users: Int[Tensor, " k"]) -> Int[Tensor, " m"]:
    """Where the histories of some users stand in a batch."""
    return ranges(batch.starts[users], batch.lengths[users])


def some_users(batch: Histories, users: Int[Tensor, " k"]) -> Histories:
    """Some users of a batch, in this order."""
    rows = positions(batch, users)
    seen_starts = batch.seen_lengths.cumsum(0) - batch.seen_lengths
    numbers = users.tolist()
    return replace(
        batch,
        items=batch.items[rows],
        lengths=batch.lengths[users],
        targets=batch.targets[rows],
        held_out=batch.held_out[users],
        seen=batch.seen[ranges(seen_starts[users], batch.seen_lengths[users])],
        seen_lengths=batch.seen_lengths[users],
        ids=tuple(batch.ids[user] for user in numbers),
        splits=tuple(batch.splits[user] for user in numbers),
        times=None if batch.times is None else batch.times[rows],
        gold=None if batch.gold is None else batch.gold[rows],
    )


def by_user(values: Float[Tensor, " n"], batch: Histories, site: str) -> AttentionMap:
    """Values of positions as a map: one query a user, the next item; its keys are the history, oldest first."""
    steps = torch.arange(int(batch.lengths.max()), device=values.device)
    real = steps < batch.lengths[:, None]
    weights = values.new_zeros(real.shape)
    weights[real] = values
    support = DenseSupport(real[:, None, None])
    return AttentionMap(site, weights[:, None, None], DenseSupport.axes, support, (0,))


def gold_positions(batch: Histories) -> Bool[Tensor, " n"] | None:
    """Which positions decide their user's next item; None where no gold is known."""
    if batch.gold is None:
        return None
    back = batch.gold[batch.last]
    places = batch.last - back
    gold = torch.zeros(len(batch.items), dtype=torch.bool, device=batch.items.device)
    gold[places[back >= 0]] = True
    return gold


def _pieces(batch: Histories) -> Iterator[Int[Tensor, " m"]]:
    """All positions, so many at a time that their users' histories have few rows together."""
    costs = batch.lengths[batch.users]
    piece = (costs.cumsum(0) - costs) // _ROWS
    for number in torch.unique(piece).tolist():
        yield (piece == number).nonzero().flatten()


def _replaced(
    batch: Histories, users: Int[Tensor, " m"], positions: Int[Tensor, " m"], item: Int[Tensor, " m"]
) -> Histories:
    """The histories of these users, each with another item at one position."""
    some = some_users(replace(batch, seen=batch.seen[:0], seen_lengths=torch.zeros_like(batch.seen_lengths)), users)
    items = some.items.clone()
    items[some.starts + positions - batch.starts[users]] = item
    return replace(some, items=items)


def _stand_ins(counts: Int[Tensor, " items"]) -> Int[Tensor, " c"]:
    """Different items, one more than are put in a place; always the same of a catalogue."""
    weights = counts.cpu().double() + 1e-9  # also where only a few were ever chosen
    drawn = min(_STAND_INS + 1, len(weights))
    return torch.multinomial(weights, drawn, generator=torch.Generator().manual_seed(0)).to(counts.device)
