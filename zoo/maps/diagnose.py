"""Measures of how spread out attention is: entropy, the effective number of keys, and the share of self-loops.

The weights of a query are divided by their sum, which is 1 after a softmax, to give a distribution over its keys. For a
query without keys, or with weights that are all 0, the measures are NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.attention.recording.attention_map import MEAN
from zoo.maps.labelled_map import LabelledMap

if TYPE_CHECKING:
    import pandas as pd


def entropy(
    weights: Float[Tensor, "*batch q k"], permitted: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*batch q"]:
    """Computes the entropy in nats of each query's weights over its keys."""
    weights = weights.float()
    if permitted is not None:
        weights = weights.masked_fill(~permitted, 0.0)
    share = weights / weights.sum(-1, keepdim=True)
    return -torch.xlogy(share, share).sum(-1)


def edge_entropy(weights: Float[Tensor, "e h"], target: Int[Tensor, " e"], targets: int) -> Float[Tensor, "n h"]:
    """Computes the entropy in nats of each target's weights over its edges, by head."""
    weights, target = weights.float(), target.long()
    total = _sums(weights, target, targets)
    share = weights / total[target]
    # An empty sum is 0, but without weight there is no distribution: 0 / 0 makes it NaN.
    return _sums(-torch.xlogy(share, share), target, targets) + 0.0 * (total / total)


def normalize(entropy: Float[Tensor, "..."], keys: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Divides entropy by its maximum, log(keys): 1 is uniform. NaN for a query with one key."""
    return torch.where(keys > 1, entropy / keys.clamp(min=2).log(), torch.nan)


def effective_keys(entropy: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Computes exp(entropy): the number of keys with equal weights that have this entropy."""
    return entropy.exp()


def self_loop_share(
    weights: Float[Tensor, "e h"], is_self_loop: Bool[Tensor, " e"], target: Int[Tensor, " e"], targets: int
) -> Float[Tensor, "n h"]:
    """Computes the share of each node's attention that goes to itself, by head."""
    weights, target = weights.float(), target.long()
    of_self_loops = torch.where(is_self_loop[:, None], weights, 0.0)
    return _sums(of_self_loops, target, targets) / _sums(weights, target, targets)


def table(found: LabelledMap) -> pd.DataFrame:
    """Returns a table with one row for each head and query.

    Its columns are layer, head, the labels of the query along its axes, keys (the number of permitted keys), entropy,
    normalised_entropy and effective_keys, and self_loop_share if queries and keys are the same.
    """
    import pandas as pd

    from zoo.maps.dataframes import query_columns

    if found.is_gate:
        raise ValueError(f"{found.site} is a gate, whose values are not a distribution")
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
            "normalised_entropy": normalize(nats, keys).numpy(),
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
