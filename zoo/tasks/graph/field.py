"""The receptive field of some nodes: what of a graph their outputs depend on, and nothing else.

A training step on Cora is about 140 nodes; two layers see 1,664 of its 2,708 nodes, and the second layer computes 140.
Outputs and gradients are those of the whole graph; only random masks are drawn for fewer elements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention import EdgeSupport
from zoo.tasks.graph.features import SparseFeatures


@dataclass(frozen=True, eq=False)
class Hop:
    """What one layer computes: outputs for some of its inputs.

    Args:
        support: Edges from inputs to outputs, each numbered from 0.
        own: Which input each output is; None where they are the same nodes.
        edges: Which pair of the whole graph's support each pair is; None where they are the same.
    """

    support: EdgeSupport
    own: Int[Tensor, " outputs"] | None = None
    edges: Int[Tensor, " e"] | None = None

    def at_outputs(self, x: Float[Tensor, "inputs ..."]) -> Float[Tensor, "outputs ..."]:
        return x if self.own is None else x.index_select(0, self.own)

    def to(self, device: torch.device | str, **options: Any) -> Hop:
        own, edges = (None if x is None else x.to(device=device, **options) for x in (self.own, self.edges))
        return Hop(self.support.to(device, **options), own, edges)


@dataclass(frozen=True, eq=False)
class Field:
    """Input features and one hop for each layer; the last hop's outputs are the nodes that were asked for."""

    x: Float[Tensor, "inputs f"] | SparseFeatures
    hops: tuple[Hop, ...]

    def to(self, device: torch.device | str, **options: Any) -> Field:
        return Field(self.x.to(device=device, **options), tuple(hop.to(device, **options) for hop in self.hops))


def whole(x: Float[Tensor, "n f"] | SparseFeatures, support: EdgeSupport, layers: int) -> Field:
    """Every node at every layer."""
    return Field(x, (Hop(support),) * layers)


def receptive_field(
    x: Float[Tensor, "n f"] | SparseFeatures, support: EdgeSupport, nodes: Int[Tensor, " outputs"], layers: int
) -> Field:
    """What `nodes` depend on, layer by layer from the last to the first."""
    count = support.pattern.shape[0]
    source, target = support.source.long(), support.target.long()
    hops: list[Hop] = []
    outputs = nodes
    for _ in range(layers):
        needed = _mask(outputs, count)[target]
        inputs = _mask(torch.cat([outputs, source[needed]]), count).nonzero().squeeze(1)
        edges = torch.stack([_places(inputs, count)[source[needed]], _places(outputs, count)[target[needed]]])
        part = EdgeSupport.from_edges(edges, len(outputs), len(inputs))
        degrees = None if support.key_degrees is None else support.key_degrees[inputs]
        own, kept = _places(inputs, count)[outputs], needed.nonzero().squeeze(1)[part.order]
        hops.insert(0, Hop(replace(part, key_degrees=degrees), own, kept))
        outputs = inputs
    return Field(x.rows(outputs) if isinstance(x, SparseFeatures) else x.index_select(0, outputs), tuple(hops))


def _mask(nodes: Int[Tensor, " m"], count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.bool, device=nodes.device).index_fill_(0, nodes, True)


def _places(nodes: Int[Tensor, " m"], count: int) -> Int[Tensor, " n"]:
    """Where each node of the graph stands among `nodes`."""
    places = torch.zeros(count, dtype=torch.int64, device=nodes.device)
    places[nodes] = torch.arange(len(nodes), device=nodes.device)
    return places
