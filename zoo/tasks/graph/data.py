"""Graphs as the trainer takes them: each split scores its own nodes, all at once or, in training, some at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.attention.ranges import Count, Natural, Seed, Share
from zoo.data.loader import Loader
from zoo.errors import DataError
from zoo.tasks.contract import TaskData
from zoo.tasks.graph.batch import Data, as_batch
from zoo.tasks.graph.citations import read_planetoid
from zoo.tasks.graph.files import read_graph
from zoo.tasks.graph.graph import SPLITS, Graph, row_normalised
from zoo.tasks.graph.planted import Cue, plant

_SMALL = 100_000
Vocabulary = Sequence[str]
Reader = Callable[[Vocabulary | None, Vocabulary | None], Graph]
"""(labels, feature_names) of a trained model, or None and None -> Graph."""


class GraphData(TaskData):
    """One graph, whole, in every batch; what differs is which nodes are scored.

    Args:
        read: Where the graph comes from.
        max_epochs: Passes over the nodes of the training split at most.
        batch_size: Nodes scored in a training step, in a new order every epoch; each step computes their receptive
            field and no more. None: all. Evaluation scores all at once.
        self_loops: Every node attends to itself too.
        directed: How edges of the user's own files are read by `for_input`.
    """

    def __init__(
        self,
        read: Reader,
        *,
        max_epochs: Count,
        batch_size: Count | None = None,
        self_loops: bool = True,
        directed: bool = False,
    ) -> None:
        super().__init__()
        if batch_size is not None and batch_size < 1:
            raise DataError(f"data.batch_size={batch_size}: write a whole number from 1, or null for all nodes")
        self.read = read
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.self_loops = self_loops
        self.directed = directed
        self.graph: Graph | None = None
        self._vocabulary: tuple[Vocabulary, Vocabulary] | None = None

    def setup(self, stage: str | None = None) -> None:
        if self.graph is not None:
            return
        self.graph = self.read(*(self._vocabulary or (None, None)))
        self._whole = as_batch(self.graph, self_loops=self.self_loops)

    def sizes(self) -> dict[str, int]:
        """What the model must know of the data."""
        graph = self._ready()
        return {"features": len(graph.feature_names), "classes": len(graph.label_names)}

    def train_size(self) -> int:
        """Examples an epoch: the nodes of the training split."""
        return int((self._ready().split == SPLITS["train"]).sum())

    def threads(self) -> int | None:
        """On small graphs two threads gain nothing, and beside other work they wait for each other."""
        return 1 if self._ready().edges.shape[1] <= _SMALL else None

    form: ClassVar[Mapping[str, Any]] = {"labels": [str], "features": [str], "normalised": bool}

    def state(self) -> dict[str, Any]:
        """What a checkpoint must know of the data, in plain types; `restore` takes it back."""
        graph = self._ready()
        return {
            "labels": list(graph.label_names),
            "features": list(graph.feature_names),
            "normalised": isinstance(self.read, partial) and bool(self.read.keywords.get("normalise", False)),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Reads the data with a checkpoint's vocabulary instead of its own."""
        self._vocabulary = (state["labels"], state["features"])
        self.graph = None

    def for_input(self, paths: Sequence[Path], state: dict[str, Any]) -> GraphData:
        """The user's own graph, a folder with nodes.csv and edges.csv, for a model trained on this data."""
        if len(paths) != 1:
            raise DataError(f"{len(paths)} inputs were given; a model of graphs takes one folder at a time")
        (path,) = paths
        if not path.is_dir():
            raise DataError(f"{path}: give the folder that holds nodes.csv and edges.csv")
        read = partial(
            _read_files,
            nodes=path / "nodes.csv",
            edges=path / "edges.csv",
            directed=self.directed,
            normalise=state["normalised"],
            on_bad_row=self.on_bad_row,
        )
        data = GraphData(read, max_epochs=0, self_loops=self.self_loops, directed=self.directed)
        data.restore(state)
        return data

    def loader(self, split: str) -> Loader:
        """One batch whose `nodes` are those of one split; `all` for every node."""
        nodes = self._nodes(split)
        return Loader([self._scoring(nodes)] if len(nodes) else [], collate=_only, shared=False)

    def train_dataloader(self) -> Loader:
        if self.batch_size is None:
            return self.loader("train")
        nodes = self._nodes("train")
        return Loader(
            range(len(nodes)),
            collate=lambda numbers: self._scoring(nodes[numbers]),
            batch_size=self.batch_size,
            shuffle=True,
            seed=self.order_seed,
            even=True,
            shared=False,  # the module shares out the nodes of a batch
        )

    def transfer_batch_to_device(self, batch: Data, device: torch.device, dataloader_idx: int) -> Data:
        return batch if batch.y.device == device else batch.to(device)

    def _nodes(self, split: str) -> Tensor:
        graph = self._ready()
        return torch.arange(len(graph.ids)) if split == "all" else (graph.split == SPLITS[split]).nonzero().squeeze(1)

    def _scoring(self, nodes: Tensor) -> Data:
        batch = copy.copy(self._whole)
        batch.nodes = nodes
        return batch

    def _ready(self) -> Graph:
        self.setup()
        assert self.graph is not None
        return self.graph


def planted_graph(
    *,
    cue: Cue = "static",
    seed: Seed = 0,
    nodes: Count = 3000,
    classes: Count = 5,
    tags: Count = 8,
    trusted: Count = 3,
    distractors: Natural = 6,
    width: Count = 32,
    noise: Share = 0.1,
    self_loops: bool = True,
    max_epochs: Count,
    batch_size: Count | None = None,
) -> GraphData:
    """The embedded data set: labels that only the trusted neighbours know (`zoo.tasks.graph.planted`)."""
    made = partial(
        plant,
        cue=cue,
        seed=seed,
        nodes=nodes,
        classes=classes,
        tags=tags,
        trusted=trusted,
        distractors=distractors,
        width=width,
        noise=noise,
    )
    return GraphData(
        partial(_with_own_names, made),
        max_epochs=max_epochs,
        batch_size=batch_size,
        self_loops=self_loops,
        directed=True,
    )


def planetoid(
    *,
    name: str,
    root: str,
    cache: str | None = None,
    self_loops: bool = True,
    max_epochs: Count,
    batch_size: Count | None = None,
) -> GraphData:
    """Cora, Citeseer or Pubmed with their public split."""
    published = partial(read_planetoid, Path(root), name, cache=None if cache is None else Path(cache))
    return GraphData(
        partial(_with_own_names, published), max_epochs=max_epochs, batch_size=batch_size, self_loops=self_loops
    )


def graph_files(
    *,
    nodes: str,
    edges: str,
    directed: bool = False,
    normalise: bool = False,
    on_bad_row: str = "error",
    split_seed: Seed = 0,
    self_loops: bool = True,
    max_epochs: Count,
    batch_size: Count | None = None,
) -> GraphData:
    """The user's own graph: see data/README.md."""
    read = partial(
        _read_files,
        nodes=Path(nodes),
        edges=Path(edges),
        directed=directed,
        normalise=normalise,
        on_bad_row=on_bad_row,
        split_seed=split_seed,
    )
    return GraphData(read, max_epochs=max_epochs, batch_size=batch_size, self_loops=self_loops, directed=directed)


def _read_files(labels: Vocabulary | None, features: Vocabulary | None, *, normalise: bool, **options: Any) -> Graph:
    graph = read_graph(**options, labels=labels, feature_names=features)
    if not normalise:
        return graph
    return Graph(**{**vars(graph), "features": row_normalised(graph.features)})


def _with_own_names(read: Callable[[], Graph], labels: Vocabulary | None, features: Vocabulary | None) -> Graph:
    """A set with names of its own can serve a trained model only if they are the model's."""
    graph = read()
    for what, wanted, found in (("labels", labels, graph.label_names), ("features", features, graph.feature_names)):
        if wanted is not None and list(wanted) != list(found):
            raise DataError(
                f"the model was trained on other {what} than this data has ({len(wanted)} against {len(found)}); "
                "fine-tune it on this data with init=CHECKPOINT"
            )
    return graph


def _only(batches: list[Data]) -> Data:
    (batch,) = batches
    return batch
