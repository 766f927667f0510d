"""How spread out attention is: entropy, the number of keys it comes to, the share that stays at home.

The weights of a query are read as a distribution: divided by their sum, which is 1 already where a softmax made them. A
query without keys or without weight has none, and its figures are NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.attention.observing.attention_map import MEAN
from zoo.maps.labelled import LabelledMap

if TYPE_CHECKING:
    import pandas as pd


def entropy(
    weights: Float[Tensor, "*batch q k"], permitted: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*batch q"]:
    """Entropy in nats of each query's weights over its keys."""
    weights = weights.float()
    if permitted is not None:
        weights = weights.masked_fill(~permitted, 0.0)
    share = weights / weights.sum(-1, keepdim=True)
    return -torch.xlogy(share, share).sum(-1)


def edge_entropy(weights: Float[Tensor, "e h"], target: Int[Tensor, " e"], targets: int) -> Float[Tensor, "n h"]:
    """Entropy in nats of each target's weights over its edges, by head."""
    weights, target = weights.float(), target.long()
    total = _sums(weights, target, targets)
    share = weights / total[target]
    # Nothing to add up is 0, but here it is no distribution: 0 / 0 says so.
    return _sums(-torch.xlogy(share, share), target, targets) + 0.0 * (total / total)


def normalised(entropy: Float[Tensor, "..."], keys: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Entropy as a share of its greatest value, log(keys): 1 is uniform. NaN for one key, where there is no choice."""
    return torch.where(keys > 1, entropy / keys.clamp(min=2).log(), torch.nan)


def effective_keys(entropy: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """How many equally attended keys have this entropy: exp(entropy)."""
    return entropy.exp()


def self_loop_share(
    weights: Float[Tensor, "e h"], is_self_loop: Bool[Tensor, " e"], target: Int[Tensor, " e"], targets: int
) -> Float[Tensor, "n h"]:
    """How much of each node's attention goes to itself, by head."""
    weights, target = weights.float(), target.long()
    at_home = torch.where(is_self_loop[:, None], weights, 0.0)
    return _sums(at_home, target, targets) / _sums(weights, target, targets)


def table(found: LabelledMap) -> pd.DataFrame:
    """One row for each head and query.

    Returns:
        layer, head, the query (by the names of its axes), keys (how many it may attend to), entropy,
        normalised_entropy, effective_keys; self_loop_share where queries and keys are the same things.
    """
    import pandas as pd

    from zoo.maps.frames import query_columns

    if found.is_gate:
        raise ValueError(f"{found.site} is a gate, whose values are no distribution")
    parts = []
    for head in found.heads:
        pairs = found.pairs(head)
        nats = edge_entropy(pairs.weights[:, None], pairs.query, pairs.queries)[:, 0]
        keys = torch.bincount(pairs.query, minlength=pairs.queries)
        columns = {
            "layer": found.layer,
            "head": "mean" if head == MEAN else head,
            **query_columns(found, torch.arange(pairs.queries)),
            "keys": keys.numpy(),
            "entropy": nats.numpy(),
            "normalised_entropy": normalised(nats, keys).numpy(),
            "effective_keys": effective_keys(nats).numpy(),
        }
        if found.attends_to_itself:
            is_self_loop = pairs.query % len(found.labels[found.query_axes[-1]]) == pairs.key
            share = self_loop_share(pairs.weights[:, None], is_self_loop, pairs.query, pairs.queries)
            columns["self_loop_share"] = share[:, 0].numpy()
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def _sums(x: Float[Tensor, "e h"], target: Int[Tensor, " e"], targets: int) -> Float[Tensor, "n h"]:
    return x.new_zeros(targets, x.shape[1]).index_add(0, target, x)
