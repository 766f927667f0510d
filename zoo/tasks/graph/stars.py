"""Nodes with their incoming edges alone: the maps of a few nodes of a large graph, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention import AttentionMap, EdgeSupport
from zoo.tasks.graph.models import elu
from zoo.tasks.graph.receptive_field import Hop, receptive_field
from zoo.tasks.graph.sparse_features import SparseFeatures

if TYPE_CHECKING:
    from zoo.tasks.graph.models import GraphAttentionNet

_ENDS = 2**18
"""Maximum number of edges and output nodes that are computed at once, unless one node has more edges."""


class Stars:
    """Some nodes of a graph, all of their incoming edges, and the nodes that these come from.

    Args:
        support: Edges of the graph.
        centres: Some of its nodes.

    Attributes:
        edges: Number of each edge in the graph.
        nodes: Number of each node in the graph; the centres come first, in their order.
        support: The edges, over nodes that are numbered anew.
        count: Number of centres.
    """

    def __init__(self, support: EdgeSupport, centres: Int[Tensor, " c"]) -> None:
        number = torch.full((support.pattern.shape[0],), -1, dtype=torch.int64, device=centres.device)
        number[centres] = torch.arange(len(centres), device=centres.device)
        edges = (number[support.target.long()] >= 0).nonzero().squeeze(1)
        source, target = support.source[edges].long(), support.target[edges].long()
        others = torch.unique(source[number[source] < 0])
        self.count, self.nodes = len(centres), torch.cat([centres, others])
        number[others] = torch.arange(len(centres), len(self.nodes), device=centres.device)
        self.support = EdgeSupport.from_edges(torch.stack([number[source], number[target]]), len(self.nodes))
        self.edges = edges[self.support.order]
        self._whole = support

    def inputs(self, net: GraphAttentionNet, x: Float[Tensor, "n f"] | SparseFeatures) -> list[Tensor | SparseFeatures]:
        """Computes for each layer what these nodes have before it, in blocks of nodes."""
        *earlier, _ = net.layers
        field = receptive_field(x, self._whole, self.nodes, len(earlier))
        at = [torch.arange(len(self.nodes), device=self.nodes.device)]
        for hop in reversed(field.hops[1:]):
            assert hop.own is not None
            at.insert(0, hop.own[at[0]])
        found: list[Tensor | SparseFeatures] = [_rows(x, self.nodes)]
        hidden: Tensor | SparseFeatures = field.x
        for layer, hop, position in zip(earlier, field.hops, at, strict=False):
            hidden = torch.cat([elu(layer(_rows(hidden, needed), part)) for needed, part in _blocks(hop)])
            found.append(hidden[position])
        return found

    def attend(self, net: GraphAttentionNet, inputs: list[Tensor | SparseFeatures]) -> None:
        """Computes the attention of the centres in every layer; it is that of a pass over the whole graph."""
        ends = torch.stack([self.support.source.long(), self.support.target.long()])
        support = EdgeSupport.from_edges(ends, self.count, len(self.nodes))
        degrees = None if self._whole.key_degrees is None else self._whole.key_degrees[self.nodes]
        hop = Hop(replace(support, key_degrees=degrees), torch.arange(self.count, device=ends.device))
        for layer, given in zip(net.layers, inputs, strict=True):
            layer(given, hop)

    def place(self, found: AttentionMap) -> AttentionMap:
        """Returns the map of a layer over all nodes of the graph, or of the centres, as a map over these nodes."""
        return replace(found, support=self.support, probabilities=None, alignment=None)


def _rows(x: Tensor | SparseFeatures, nodes: Int[Tensor, " m"]) -> Tensor | SparseFeatures:
    return x.rows(nodes) if isinstance(x, SparseFeatures) else x.index_select(0, nodes)


def _blocks(hop: Hop) -> Iterator[tuple[Int[Tensor, " inputs"], Hop]]:
    """Yields the computation of a layer for some outputs after others, each with the inputs that it needs."""
    support, starts = hop.support, hop.support.pattern.row_starts.long()
    own = torch.arange(len(starts) - 1, device=starts.device) if hop.own is None else hop.own
    cost = starts + torch.arange(len(starts), device=starts.device)
    first = 0
    while first < len(own):
        last = max(first + 1, int(torch.searchsorted(cost, cost[first] + _ENDS, right=True)) - 1)
        edges = slice(int(starts[first]), int(starts[last]))
        source, target = support.source[edges].long(), support.target[edges].long() - first
        needed = torch.unique(torch.cat([own[first:last], source]))
        ends = torch.stack([torch.searchsorted(needed, source), target])
        part = EdgeSupport.from_edges(ends, last - first, len(needed))
        degrees = None if support.key_degrees is None else support.key_degrees[needed]
        yield needed, Hop(replace(part, key_degrees=degrees), torch.searchsorted(needed, own[first:last]))
        first = last
