"""Recorded maps that the tests of `zoo.maps` share."""

from __future__ import annotations

import torch
from torch import Tensor

from zoo.attention import AttentionMap, DenseSupport, EdgeSupport
from zoo.maps import LabelledMap, label_map


def dense_map(
    *,
    site: str = "layers.0.attend",
    batch: int = 2,
    heads: int = 3,
    queries: int = 4,
    keys: int = 5,
    key_mask: Tensor | None = None,
    causal: bool = False,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> AttentionMap:
    """Returns the recorded map of a softmax over random scores."""
    permitted = None if key_mask is None else key_mask[:, None, None, :]
    support = DenseSupport(permitted, causal)
    scores = torch.randn(batch, heads, queries, keys, generator=torch.Generator().manual_seed(seed))
    weights = support.softmax(scores).to(dtype)
    return AttentionMap(site, weights, ("batch", "head", "query", "key"), support, tuple(range(heads)))


def edge_map(
    edges: Tensor,
    nodes: int,
    *,
    site: str = "layers.0.attend",
    heads: int = 2,
    self_loops: bool = True,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    support: EdgeSupport | None = None,
) -> AttentionMap:
    support = support or EdgeSupport.from_edges(edges, nodes, self_loops=self_loops)
    scores = torch.randn(len(support.order), heads, generator=torch.Generator().manual_seed(seed))
    weights = support.softmax(scores).to(dtype)
    return AttentionMap(site, weights, ("edge", "head"), support, tuple(range(heads)))


def random_edges(nodes: int, count: int, seed: int = 0) -> Tensor:
    return torch.randint(nodes, (2, count), generator=torch.Generator().manual_seed(seed))


def by_hand(rows: list[list[float]], queries: str, keys: str, gold: list[tuple[int, int]] | None = None) -> LabelledMap:
    """Returns a map of one head with these weights; a 0 is a weight, not a mask."""
    weights = torch.tensor(rows)[None, None]
    found = AttentionMap("attend", weights, ("batch", "head", "query", "key"), DenseSupport(), (0,))
    marks = None
    if gold is not None:
        marks = torch.zeros(weights.shape[2:], dtype=torch.bool)
        for query, key in gold:
            marks[query, key] = True
    return label_map(found, {"query": queries.split(), "key": keys.split()}, gold=marks)


def star(weights: dict[str, float], centre: str = "17", gold: set[str] | None = None) -> LabelledMap:
    """Returns a map in which one node attends to these; its own name among them is a self-loop."""
    ids = sorted({*weights, centre})
    sources = [ids.index(name) for name in weights]
    support = EdgeSupport.from_edges(torch.tensor([sources, [ids.index(centre)] * len(sources)]), len(ids))
    column = torch.tensor(list(weights.values()))[support.order, None]
    marks = None if gold is None else torch.tensor([name in gold for name in weights])[support.order]
    found = AttentionMap("attend", column, ("edge", "head"), support, (0,))
    return label_map(found, {"source": ids, "target": ids}, gold=marks)
