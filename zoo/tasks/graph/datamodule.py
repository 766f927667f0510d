"""Data sets of one graph, of which each split scores its own nodes, all at once or in mini-batches for training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from zoo.data.encodings import UTF8, Encoding
from zoo.data.loader import Loader
from zoo.data.tables import OnBadRow
from zoo.errors import DataError
from zoo.tasks.base import TaskData
from zoo.tasks.batching import BatchOptions, Examples
from zoo.tasks.dataset_registry import dataset
from zoo.tasks.graph.batch import GraphBatch, as_batch
from zoo.tasks.graph.graph import NONE, SPLITS, Graph, row_normalised
from zoo.tasks.graph.synthetic import plant
from zoo.types import Seed, validate_ranges

if TYPE_CHECKING:
    from zoo.tasks.data_summary import Summary

_SMALL = 100_000


@dataclass(frozen=True)
class GraphSource:
    """The source of a graph.

    Args:
        read: `(labels, feature_names) -> Graph`, called with the vocabularies of a trained model, or None and None.
        directed: If True, the edges of the user's own files are read as directed.
        normalised: If True, each node's features are divided by their sum, also in the user's own files.
    """

    read: Callable[..., Graph]
    directed: bool = False
    normalised: bool = False


class GraphData(TaskData):
    """One graph. Every batch holds all of it; batches differ in the nodes that are scored.

    With a batch size, a training step scores that many nodes, in a new order every epoch, and computes only their
    receptive field. Evaluation scores all nodes of a split at once.

    Args:
        source: Source of the graph.
        batching: Options of batches, whose examples are nodes.
        self_loops: If True, every node also attends to itself.
    """

    source: GraphSource

    def __init__(self, source: GraphSource, batching: BatchOptions, *, self_loops: bool = True) -> None:
        super().__init__(source, batching)
        self.self_loops = self_loops

    def read(self) -> Graph:
        trained = self.trained or {"labels": None, "features": None}
        graph = self.source.read(labels=trained["labels"], feature_names=trained["features"])
        if self.source.normalised:
            graph = replace(graph, features=row_normalised(graph.features))
        self._all_nodes = as_batch(graph, self_loops=self.self_loops)
        return graph

    @property
    def graph(self) -> Graph:
        """The graph that was read."""
        graph: Graph = self.content
        return graph

    def names(self, content: Graph) -> dict[str, Sequence[str]]:
        return {"labels": content.label_names, "features": content.feature_names}

    @classmethod
    def sizes_of(cls, state: Mapping[str, Any]) -> dict[str, int]:
        return {"features": len(state["features"]), "classes": len(state["labels"])}

    def train_size(self) -> int:
        """Returns the number of nodes in the training split."""
        return len(self._nodes("train"))

    def summary(self) -> Summary:
        from zoo.tasks.data_summary import Longest, Summary, count_labels, count_splits

        graph = self.graph
        splits, incoming = graph.split.numpy(), torch.bincount(graph.edges[1], minlength=len(graph.ids)).numpy()
        return Summary(
            noun="node",
            sizes=count_splits(splits),
            spare=int((graph.split == NONE).sum()),
            totals={"edge": graph.edges.shape[1], "feature": len(graph.feature_names)},
            labels=count_labels(graph.label_names, graph.labels.numpy(), splits),
            longest=Longest.find("incoming edge", graph.ids, incoming),
        )

    def threads(self) -> int | None:
        """Returns 1 for small graphs: two threads gain nothing, and wait for each other on a busy machine."""
        return 1 if self.graph.edges.shape[1] <= _SMALL else None

    form: ClassVar[Mapping[str, Any]] = {"labels": [str], "features": [str], "normalised": bool}

    def state(self) -> dict[str, Any]:
        """Returns the names of labels and features, and whether features are divided by their sum."""
        return {**super().state(), "normalised": self.source.normalised}

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> GraphSource:
        """Returns the source of the user's own graph: a folder with nodes.csv and edges.csv."""
        if len(paths) != 1:
            raise DataError(f"{len(paths)} inputs were given; a model of graphs takes one folder at a time")
        (path,) = paths
        if not path.is_dir():
            raise DataError(f"{path}: give the folder that holds nodes.csv and edges.csv")
        from zoo.tasks.graph.readers import read_graph

        read = partial(
            read_graph,
            path / "nodes.csv",
            path / "edges.csv",
            directed=self.source.directed,
            on_bad_row=self.on_bad_row,
            encoding=self.encoding,
            unknown=self.unknown_labels,
        )
        return GraphSource(read, self.source.directed, state["normalised"])

    def prediction_loader(self, split: str) -> Loader:
        nodes = self._nodes(split, labelled=False)
        entries = [self._score_nodes(nodes)] if len(nodes) else []
        return self._loader(Examples(entries=entries, collate=_only, shared=False), None)

    def examples(self, split: str, *, training: bool = False) -> Examples:
        """Returns one example, the graph with the nodes of the split; for mini-batches, one example for each node.

        Every process gets the whole batch, and the module takes its share of the nodes.
        """
        nodes = self._nodes(split)
        if training and self.batching.batch_size is not None:
            return Examples(
                entries=range(len(nodes)), collate=lambda numbers: self._score_nodes(nodes[numbers]), shared=False
            )
        return Examples(entries=[self._score_nodes(nodes)] if len(nodes) else [], collate=_only, shared=False)

    def _nodes(self, split: str, *, labelled: bool = True) -> Tensor:
        """Returns the nodes of a split, on request also those without a label; or all nodes."""
        graph = self.graph
        if split == "all":
            return torch.arange(len(graph.ids))
        chosen = graph.split == SPLITS[split]
        return (chosen & (graph.labels != NONE) if labelled else chosen).nonzero().squeeze(1)

    def _score_nodes(self, nodes: Tensor) -> GraphBatch:
        batch = copy.copy(self._all_nodes)
        batch.nodes = nodes
        return batch


@dataset(GraphData, generator=plant)
def planted_graph(generate: Callable[[], Graph]) -> GraphSource:
    """A generated graph, in which trusted neighbours alone determine a node's label (`zoo.tasks.graph.synthetic`)."""
    return GraphSource(lambda **_: generate(), directed=True)


@dataset(GraphData)
def planetoid(*, name: str, root: str, cache: str | None = None) -> GraphSource:
    """Cora, Citeseer or Pubmed with the public split."""
    from zoo.tasks.graph.planetoid_files import read_planetoid

    return GraphSource(lambda **_: read_planetoid(root, name, cache=cache))


@dataset(GraphData)
@validate_ranges
def graph_files(
    *,
    nodes: str,
    edges: str,
    directed: bool = False,
    normalise: bool = False,
    on_bad_row: OnBadRow = "error",
    encoding: Encoding = UTF8,
    split_seed: Seed = 0,
) -> GraphSource:
    """The user's own graph, in two files; data/README.md describes their format."""
    from zoo.tasks.graph.readers import read_graph

    read = partial(
        read_graph, nodes, edges, directed=directed, on_bad_row=on_bad_row, encoding=encoding, split_seed=split_seed
    )
    return GraphSource(read, directed, normalise)


def _only(batches: list[GraphBatch]) -> GraphBatch:
    (batch,) = batches
    return batch
