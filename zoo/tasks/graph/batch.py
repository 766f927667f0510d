"""A graph as a batch: PyG's `Data` with the attention support of its edges."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from zoo.attention import EdgeSupport
from zoo.maps import edge_gold
from zoo.tasks.graph.graph import Graph
from zoo.tasks.graph.sparse_features import SparseFeatures

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=".*torch.jit.script.*")  # raised by PyG at import
    from torch_geometric.data import Data

__all__ = ["Data", "GraphBatch", "as_batch"]


class GraphBatch(Data):  # type: ignore[misc]
    """A graph, and the nodes that a step scores (`nodes`)."""

    def to(self, device: torch.device | str, *args: Any, **options: Any) -> GraphBatch:
        """Returns the graph on a device; the same object if it is there already."""
        if self.y.device == torch.device(device):
            return self
        found: GraphBatch = super().to(device, *args, **options)
        return found


def as_batch(graph: Graph, *, self_loops: bool = True) -> GraphBatch:
    """Makes a batch that scores all nodes, with gold attention in the order of the support's edges."""
    count = len(graph.ids)
    support = EdgeSupport.from_edges(graph.edges, count, self_loops=self_loops)
    sparse = graph.features.layout == torch.sparse_csr
    return GraphBatch(
        x=SparseFeatures.from_csr(graph.features) if sparse else graph.features,
        y=graph.labels,
        split=graph.split,
        nodes=torch.arange(count),
        support=support,
        gold=None if graph.gold is None else edge_gold(graph.gold, support),
        ids=np.array(graph.ids, dtype=object),  # an array, because Data would visit every string of a list
        label_names=np.array(graph.label_names, dtype=object),
        num_nodes=count,
    )
