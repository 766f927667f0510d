"""Nodes without some of their neighbours, as copies of a receptive field in one graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from zoo.attention import EdgeSupport
from zoo.maps.perturbation import Perturbable
from zoo.tasks.graph.batch import Data
from zoo.tasks.graph.receptive_field import Field, Hop, receptive_field
from zoo.tasks.graph.sparse_features import SparseFeatures

if TYPE_CHECKING:
    from zoo.tasks.graph.task import NodeClassifier

_EDGES = 2**18
"""Maximum number of edges per layer in one batch of variants."""


class PerturbableNode(Perturbable):
    """A node whose inputs are its neighbours. Leaving one out removes its edge to the node, in every layer.

    Args:
        module: Classifier.
        batch: Graph.
        node: Number of the node.
    """

    noun = "neighbour"
    max_size = _EDGES

    def __init__(self, module: NodeClassifier, batch: Data, node: int) -> None:
        self.net, support = module.net, batch.support
        at = torch.tensor([node], device=support.target.device)
        self.field = receptive_field(batch.x, support, at, len(self.net.layers))
        edges = ((support.target == node) & (support.source != node)).nonzero().squeeze(1)
        self.places = [_places(hop, edges) for hop in self.field.hops]
        self.size = max(len(hop.support.pattern) for hop in self.field.hops)
        with torch.no_grad(), module.record_scored() as found:
            logits = self.net.on_field(self.field)
        self.answer = int(logits[0].argmax())
        self.attention = module.compute_scored_map(found).weights[self.places[module.explain_layer], 0].float()

    def score_batch(self, keep: Bool[Tensor, "v n"]) -> Float[Tensor, " v"]:
        logits: Tensor = self.net.on_field(self._copies(keep))
        return logits.double().softmax(-1)[:, self.answer]

    def gradient(self) -> Float[Tensor, " n"]:
        """Computes it at the features of the neighbours, along all paths to the node."""
        x = self.field.x
        entries = (x.values if isinstance(x, SparseFeatures) else x).detach().clone().requires_grad_()
        given = SparseFeatures(entries, x.pattern) if isinstance(x, SparseFeatures) else entries
        with torch.enable_grad():
            logits = self.net.on_field(replace(self.field, x=given))
            (gradient,) = torch.autograd.grad(logits[0].double().log_softmax(-1)[self.answer], entries)
        product = gradient.double() * entries.detach()
        if isinstance(x, SparseFeatures):
            by_node = product.new_zeros(len(x)).index_add(0, x.pattern.rows.long(), product)
        else:
            by_node = product.sum(1)
        return by_node.abs()[self.field.hops[0].support.source[self.places[0]].long()]

    def _copies(self, keep: Bool[Tensor, "v n"]) -> Field:
        """Returns the receptive fields of the variants as one field."""
        count, x = len(keep), self.field.x
        nodes = torch.arange(len(x), device=keep.device).repeat(count)
        return Field(
            x.rows(nodes) if isinstance(x, SparseFeatures) else x[nodes],
            tuple(_repeat_hop(hop, keep, places) for hop, places in zip(self.field.hops, self.places, strict=True)),
        )


def _places(hop: Hop, edges: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Returns the positions of edges of the whole graph among the edges of a layer."""
    assert hop.edges is not None
    order = hop.edges.argsort()
    return order[torch.searchsorted(hop.edges[order], edges)]


def _repeat_hop(hop: Hop, keep: Bool[Tensor, "v n"], places: Int[Tensor, " n"]) -> Hop:
    """Repeats a layer's computation for each variant, without the edges that the variant leaves out."""
    support, count = hop.support, len(keep)
    outputs, inputs = support.pattern.shape
    left = keep.new_ones(count, len(support.pattern))
    left[:, places] = keep
    copy, edge = left.nonzero(as_tuple=True)
    ends = torch.stack([support.source[edge].long() + copy * inputs, support.target[edge].long() + copy * outputs])
    repeated = EdgeSupport.from_edges(ends, count * outputs, count * inputs)
    degrees = None if support.key_degrees is None else support.key_degrees.repeat(count)
    assert hop.own is not None
    own = (torch.arange(count, device=keep.device)[:, None] * inputs + hop.own).flatten()
    return Hop(replace(repeated, key_degrees=degrees), own)
