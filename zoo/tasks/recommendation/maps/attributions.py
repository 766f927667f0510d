"""The scored map of a recommender: the contribution of each past item to a recommendation.

| how       | definition                                                                     | one map for |
|-----------|--------------------------------------------------------------------------------|-------------|
| a number  | attention of the last position in the layer with this number, mean over heads  | a user      |
| mean      | mean of these over the layers                                                  | a user      |
| rollout   | last row of the product of all layers' attention (Abnar & Zuidema 2020)        | a user      |
| occlusion | fall of an item's score when another item replaces the past item               | an item     |

Attention does not depend on the item that is recommended, so that all recommendations to a user have the same map.
Occlusion measures the effect on one item's score. It works without attention, for any mixer, and costs two passes for
each past item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from zoo.attention import Attention, AttentionMap, DenseSupport, record, sites
from zoo.attention.linear.kernel_attention import KernelAttention
from zoo.maps.rollout import rollout
from zoo.nn.packing import Packing
from zoo.nn.segments import ranges
from zoo.tasks.recommendation.batch import SequenceBatch
from zoo.types import AnyInt

How = AnyInt | Literal["mean", "rollout", "occlusion"]
ScoreOf = Callable[[SequenceBatch, Int[Tensor, "b k"]], Float[Tensor, "b k"]]
"""Computes the scores of items that differ from user to user."""
_REPLACEMENTS = 2
"""Number of items that replace a past item in turn.

On planted sessions the two greatest values are at the last item and at the item that it selects for .99 of the users
with one replacement, and for all users with two (with an average embedding: .79; with the item removed: .61).
"""
ROWS = 2**15
"""Positions of histories with a replaced item that are in one batch."""


def influence(net: nn.Module, batch: SequenceBatch, how: How) -> Float[Tensor, " n"]:
    """Computes the share of each position in the prediction of its user's next item, by attention.

    The shares of a user sum to 1, or are 0 if all weights are 0, as is possible with a sigmoid instead of a softmax.
    """
    why_not = refusal(net, how)
    if why_not:
        raise ValueError(f"{how}: {why_not}")
    if how == "occlusion":
        raise ValueError("occlusion needs the items to explain: call occlusion()")
    shares = torch.zeros(len(batch.items), device=batch.items.device)
    for group in Packing(batch.lengths, causal=True).groups:
        users = torch.tensor(group.sequences, device=batch.items.device)
        one = some_users(batch, users)
        with torch.no_grad(), record(net, layers=[how] if isinstance(how, int) else None, implied=True) as found:
            net(one)
        shares[positions(batch, users)] = last_rows(net, split_users(found, one), how)
    return shares


def last_rows(net: nn.Module, found: Attended, how: How) -> Float[Tensor, " n"]:
    """Computes the shares of `influence` from recorded maps: the row of each user's last position, normalised."""
    names = [list(sites(net))[how]] if isinstance(how, int) else list(found.maps)
    each = [found.maps[name].mean(1) for name in names]
    product = rollout(each) if how == "rollout" else torch.stack(each).mean(0)
    last = found.real.sum(1) - 1
    rows = product[torch.arange(len(last), device=last.device), last]
    total = rows.sum(1, keepdim=True)
    return (rows / total.masked_fill(total == 0.0, 1.0))[found.real]


@torch.no_grad()
def occlusion(score: ScoreOf, batch: SequenceBatch, items: Int[Tensor, "b k"]) -> Float[Tensor, "n k"]:
    """Computes the fall of each user's scores of these items when the item at a position is replaced.

    The result is the mean over two replacements, which are drawn by their counts in training and are the same at all
    positions. The past item is not removed, which would move the items before it. It is not replaced by an average of
    embeddings either, which is unlike any item that the model knows.

    Args:
        score: Computes the scores of users and items.
        batch: The users.
        items: Items of each user.
    """
    before = score(batch, items)
    falls = before.new_zeros(len(batch.items), items.shape[1])
    for positions in _pieces(batch):
        users = batch.users[positions]
        copies = copies_of(batch, users)
        keep = torch.ones_like(copies.items, dtype=torch.bool)
        keep[copies.starts + positions - batch.starts[users]] = False
        replaced = leave_out(copies, keep)
        for each in replaced:
            falls[positions] += (before[users] - score(each, items[users])) / len(replaced)
    return falls


def copies_of(batch: SequenceBatch, users: Int[Tensor, " k"]) -> SequenceBatch:
    """Returns the histories of these users, who may be repeated, without the items that they have seen."""
    return some_users(replace(batch, seen=batch.seen[:0], seen_lengths=torch.zeros_like(batch.seen_lengths)), users)


def leave_out(batch: SequenceBatch, keep: Bool[Tensor, " n"]) -> list[SequenceBatch]:
    """Returns the histories with other items instead of those that are not kept, once for each replacement."""
    *others, spare = replacements(batch.catalogue.counts).to(batch.items.device)
    # The spare one is used where the item itself would be its replacement.
    instead = [torch.where(batch.items == other, spare, other) for other in others]
    return [replace(batch, items=torch.where(keep, batch.items, items)) for items in instead]


def occlude(score: ScoreOf, batch: SequenceBatch, items: Int[Tensor, "b 1"]) -> Float[Tensor, " n"]:
    """Computes shares by the `occlusion` of one item for each user. Items that lower its score have no share."""
    lifts = occlusion(score, batch, items)[:, 0].clamp(min=0.0)
    total = lifts.new_zeros(len(batch)).index_add(0, batch.users, lifts)[batch.users]
    return lifts / total.masked_fill(total == 0.0, 1.0)


def map_name(how: How, net: nn.Module) -> str:
    """Returns the name of the map, such as "layer 1" or "rollout"."""
    return f"layer {how % len(sites(net))}" if isinstance(how, int) else how


def refusal(net: nn.Module, how: How) -> str | None:
    """Returns the reason why a net cannot give this map, as a phrase; None if it can."""
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
        if not isinstance(site, (Attention, KernelAttention)):
            return f"{name} is {type(site).__name__}, which has no weights; write occlusion"
    return None


@dataclass(frozen=True, eq=False)
class Attended:
    """The dense maps of a group of users.

    Args:
        real: Mask of the positions that are not padding, which is at the end.
        maps: Weights of each site, (users, heads, queries, keys); zero if the query or the key is padding.
    """

    real: Bool[Tensor, "u n"]
    maps: Mapping[str, Float[Tensor, "u h n n"]]


def split_users(found: Mapping[str, AttentionMap], batch: SequenceBatch) -> Attended:
    """Returns the recorded maps of the users of one group of `Packing`, in its order, as matrices.

    Sites without weights have no map, except for linear attention if its implied weights were recorded.
    """
    steps = torch.arange(int(batch.lengths.max()), device=batch.items.device)
    real = steps < batch.lengths[:, None]
    pairs = (real[:, :, None] & real[:, None, :]).unsqueeze(1)
    return Attended(real, {site: each.dense().float() * pairs for site, each in found.items()})


def positions(batch: SequenceBatch, users: Int[Tensor, " k"]) -> Int[Tensor, " m"]:
    """Returns the positions of some users' histories in a batch."""
    return ranges(batch.starts[users], batch.lengths[users])


def some_users(batch: SequenceBatch, users: Int[Tensor, " k"]) -> SequenceBatch:
    """Returns a batch of some of the users, in this order."""
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


def group_by_user(values: Float[Tensor, " n"], batch: SequenceBatch, site: str) -> AttentionMap:
    """Returns values of positions as a map with one query for each user, the next item; the keys are the history."""
    steps = torch.arange(int(batch.lengths.max()), device=values.device)
    real = steps < batch.lengths[:, None]
    weights = values.new_zeros(real.shape)
    weights[real] = values
    support = DenseSupport(real[:, None, None])
    return AttentionMap(site, weights[:, None, None], DenseSupport.axes, support, (0,))


def gold_positions(batch: SequenceBatch) -> Bool[Tensor, " n"] | None:
    """Returns a mask of the positions that decide their user's next item; None if no gold is known."""
    if batch.gold is None:
        return None
    back = batch.gold[batch.last]
    gold = torch.zeros(len(batch.items), dtype=torch.bool, device=batch.items.device)
    gold[(batch.last - back)[back >= 0]] = True
    return gold


def _pieces(batch: SequenceBatch) -> Iterator[Int[Tensor, " m"]]:
    """Yields all positions in pieces, such that the histories of a piece's users have about `ROWS` rows in total."""
    costs = batch.lengths[batch.users]
    piece = (costs.cumsum(0) - costs) // ROWS
    for number in torch.unique(piece).tolist():
        yield (piece == number).nonzero().flatten()


def replacements(counts: Int[Tensor, " items"]) -> Int[Tensor, " c"]:
    """Draws distinct items, one more than replace an item; the same for equal counts."""
    weights = counts.cpu().double() + 1e-9  # the sum makes enough items possible if few have a count
    drawn = min(_REPLACEMENTS + 1, len(weights))
    return torch.multinomial(weights, drawn, generator=torch.Generator().manual_seed(0)).to(counts.device)
