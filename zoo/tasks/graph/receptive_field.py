"""The receptive field of some nodes: the part of a graph that their outputs depend on.

A training step on Cora scores 140 nodes; two layers see 1,664 of its 2,708 nodes, and the second layer computes 140.
Outputs and gradients equal those of the whole graph, except that dropout draws masks for fewer elements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention import EdgeSupport
from zoo.tasks.graph.sparse_features import SparseFeatures


@dataclass(frozen=True, eq=False)
class Hop:
    """The nodes and edges that one layer computes.

    Args:
        support: Edges from the layer's input nodes to its output nodes, both numbered from 0.
        own: The index of each output node among the inputs. Default: outputs and inputs are the same nodes.
        edges: The index of each edge in the support of the whole graph. Default: they are the same edges.
    """

    support: EdgeSupport
    own: Int[Tensor, " outputs"] | None = None
    edges: Int[Tensor, " e"] | None = None

    def select_outputs(self, x: Float[Tensor, "inputs ..."]) -> Float[Tensor, "outputs ..."]:
        return x if self.own is None else x.index_select(0, self.own)

    def to(self, device: torch.device | str, **options: Any) -> Hop:
        own, edges = (None if x is None else x.to(device=device, **options) for x in (self.own, self.edges))
        return Hop(self.support.to(device, **options), own, edges)


@dataclass(frozen=True, eq=False)
class Field:
    """Input features and one hop for each layer; the outputs of the last hop are the scored nodes."""

    x: Float[Tensor, "inputs f"] | SparseFeatures
    hops: tuple[Hop, ...]

    def shrink(self, share: float) -> Field:
        """Returns a field with a share of the nodes and edges of each layer, which are others: it measures memory."""
        counts = [hop.support.pattern.shape for hop in self.hops]
        nodes = torch.arange(_share(share, counts[0][1]))
        x = self.x.rows(nodes) if isinstance(self.x, SparseFeatures) else self.x[: len(nodes)]
        return Field(x, tuple(_shrink_hop(hop.support, share) for hop in self.hops))

    def to(self, device: torch.device | str, **options: Any) -> Field:
        return Field(self.x.to(device=device, **options), tuple(hop.to(device, **options) for hop in self.hops))


def _shrink_hop(support: EdgeSupport, share: float) -> Hop:
    outputs, inputs = (_share(share, count) for count in support.pattern.shape)
    edges = _share(share, len(support.pattern))
    ends = torch.stack([support.source[:edges].long() % inputs, torch.arange(edges) % outputs])
    found = EdgeSupport.from_edges(ends, outputs, inputs)
    degrees = None if support.key_degrees is None else support.key_degrees[:inputs]
    return Hop(replace(found, key_degrees=degrees), torch.arange(outputs) % inputs)


def _share(share: float, count: int) -> int:
    return max(1, round(share * count))


def full_field(x: Float[Tensor, "n f"] | SparseFeatures, support: EdgeSupport, layers: int) -> Field:
    """Returns the field that computes every node at every layer."""
    return Field(x, (Hop(support),) * layers)


def receptive_field(
    x: Float[Tensor, "n f"] | SparseFeatures, support: EdgeSupport, nodes: Int[Tensor, " outputs"], layers: int
) -> Field:
    """Finds the nodes and edges that `nodes` depend on, layer by layer from the last to the first."""
    count = support.pattern.shape[0]
    source, target = support.source.long(), support.target.long()
    hops: list[Hop] = []
    outputs = nodes
    for _ in range(layers):
        needed = _mask(outputs, count)[target]
        inputs = _mask(torch.cat([outputs, source[needed]]), count).nonzero().squeeze(1)
        edges = torch.stack([_index_of(inputs, count)[source[needed]], _index_of(outputs, count)[target[needed]]])
        part = EdgeSupport.from_edges(edges, len(outputs), len(inputs))
        degrees = None if support.key_degrees is None else support.key_degrees[inputs]
        own, kept = _index_of(inputs, count)[outputs], needed.nonzero().squeeze(1)[part.order]
        hops.insert(0, Hop(replace(part, key_degrees=degrees), own, kept))
        outputs = inputs
    return Field(x.rows(outputs) if isinstance(x, SparseFeatures) else x.index_select(0, outputs), tuple(hops))


def _mask(nodes: Int[Tensor, " m"], count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.bool, device=nodes.device).index_fill_(0, nodes, True)


def _index_of(nodes: Int[Tensor, " m"], count: int) -> Int[Tensor, " n"]:
    """Returns an array that maps a node of the graph to its index in `nodes`."""
    index = torch.zeros(count, dtype=torch.int64, device=nodes.device)
    index[nodes] = torch.arange(len(nodes), device=nodes.device)
    return index
