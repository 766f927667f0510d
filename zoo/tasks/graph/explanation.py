"""Maps of a graph, which is one example; pictures and words describe single nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from zoo.attention import AttentionMap
from zoo.attention.recording.recorder import Recording
from zoo.errors import DataError, count_noun
from zoo.maps import LabelledMap, describe, label_map
from zoo.maps.explainer import (
    ExplainedExample,
    Explainer,
    LabelledAttention,
    MapOptions,
    Table,
    one_a_label,
    picture_name,
)
from zoo.maps.export import list_sizes
from zoo.tasks.graph.batch import Data
from zoo.tasks.graph.edge_tables import Limits, edges, entropies, limits
from zoo.tasks.graph.graph import TEST
from zoo.tasks.graph.perturbation import PerturbableNode
from zoo.tasks.graph.plots import neighbourhood
from zoo.tasks.graph.stars import Stars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zoo.tasks.graph.datamodule import GraphData
    from zoo.tasks.graph.task import NodeClassifier


class GraphExplainer(Explainer):
    """Computes maps, tables, descriptions of nodes and the truth score in one pass over the graph."""

    noun = "node"
    is_one_example = True

    def __init__(self, module: NodeClassifier, data: GraphData, options: MapOptions) -> None:
        super().__init__(module.net, options)
        self.module, self.data = module, data
        (self.batch,) = data.predict_dataloader()
        self._names: list[str] = self.batch.ids.tolist()
        self._truth: dict[str, float | None] = {}
        self._site = ""
        self._layers = self._nodes = 0
        self._left_out: list[str] = []

    def names(self) -> list[str]:
        return self._names

    def sample(self, count: int) -> list[int]:
        """Returns nodes with at least three neighbours, of different labels first."""
        degrees = self.batch.support.degrees.tolist()
        order = one_a_label(self.batch.y.tolist(), [degree > 2 for degree in degrees])
        return order[:count]

    def sample_for_faithfulness(self, count: int) -> list[int]:
        """Returns nodes like `sample`, but only of the test split, unless it is empty."""
        is_test = self.batch.split == TEST
        found = self.sample(len(self.batch.y))
        return [node for node in found if is_test[node] or not is_test.any()][:count]

    def make_perturbable(self, position: int) -> list[PerturbableNode]:
        return [PerturbableNode(self.module, self.batch, position)]

    def examples(self) -> Iterator[ExplainedExample]:
        """Yields the graph; if ids are given, these nodes with all of their neighbours, and nothing else of it."""
        is_whole = self.options.ids is None
        part = _Part(self.module, self.batch, None if is_whole else self.positions)
        with torch.inference_mode():
            run = part.prepare()
            with self.module.record_scored() as scored, self.record_sites() as found:
                run()
        if not len(found):
            budget = self.options.budget
            raise DataError(
                f"a budget of {budget:,} bytes holds no layer of this graph; they take {list_sizes(found.cut)}"
            )
        explained = self.module.compute_scored_map(scored)
        if "gold" in self.batch:
            (test,) = self.data.loader("test")
            self._truth = {"edge_auc": self.module.truth(test, explained if is_whole else None)}
        example = _Graph(
            found,
            part,
            part.make_labelled_map(explained),
            [self.names()[each] for each in self.positions],
            self.options,
        )
        self._layers, self._site, self._nodes = len(found), explained.site, len(part.names)
        yield example
        self._left_out = example.limits.lines

    def truth(self) -> dict[str, float | None]:
        return self._truth

    @property
    def truth_label(self) -> str:
        return f"test nodes, {self._site}, average of its heads"

    @property
    def about(self) -> Mapping[str, Any]:
        return {"nodes": len(self.names())}

    def summary(self, out: str) -> list[str]:
        layers, nodes = count_noun(self._layers, "layer"), count_noun(self._nodes, "node")
        pictures = f"{count_noun(len(self.positions), 'picture')}"
        return [f"{layers}, {nodes}, {pictures} in {out}", *self._left_out]

    def describe_chosen(self) -> list[str]:
        if not self.positions:
            return []
        part = _Part(self.module, self.batch, self.positions)
        with torch.inference_mode():
            run = part.prepare()
            with self.module.record_scored() as scored:
                run()
        found = part.make_labelled_map(self.module.compute_scored_map(scored))
        return [
            describe.describe(found, each).partition(" attends to ")[2] for each in part.names[: len(self.positions)]
        ]


class _Part:
    """The part of a graph that is written: some nodes, all edges to them, and the nodes that these come from.

    Args:
        module: Classifier.
        batch: Graph.
        nodes: The nodes. Default: all, in one pass over the graph instead of their receptive field.

    Attributes:
        stars: The nodes and edges.
        names: Names of the nodes, which come first, and of their neighbours.
        classes: The class of each; "" if it is not known.
    """

    def __init__(self, module: NodeClassifier, batch: Data, nodes: Sequence[int] | None) -> None:
        self._module, self._batch, self._is_whole = module, batch, nodes is None
        self.stars = Stars(batch.support, batch.nodes if nodes is None else torch.tensor(nodes, device=batch.y.device))
        at = self.stars.nodes.cpu().numpy()
        self.names: list[str] = batch.ids[at].tolist()
        self.classes = [batch.label_names[y] if y >= 0 else "" for y in batch.y[self.stars.nodes].tolist()]
        self.gold = batch.gold[self.stars.edges] if "gold" in batch else None

    def prepare(self) -> Callable[[], object]:
        """Returns the pass that computes the attention of the nodes; what comes before it is not to be recorded."""
        if self._is_whole:
            return partial(self._module, self._batch)
        net = self._module.net
        return partial(self.stars.attend, net, self.stars.inputs(net, self._batch.x))

    def label_edges(self, found: AttentionMap) -> LabelledAttention:
        """Returns the map of a site on these edges, with names and gold."""
        ends, placed = ("source", "target"), self.stars.place(found)
        return LabelledAttention(placed, dict.fromkeys(ends, self.names), dict.fromkeys(ends, "node"), self.gold)

    def make_labelled_map(self, found: AttentionMap) -> LabelledMap:
        """Returns the same map as it is drawn."""
        named = self.label_edges(found)
        return label_map(named.found, named.axis_labels, gold=named.gold)


class _Graph(ExplainedExample):
    """The graph as an example, with pictures and words of some nodes from the scored map."""

    def __init__(
        self, found: Recording, part: _Part, scored: LabelledMap, drawn: Sequence[str], options: MapOptions
    ) -> None:
        self.found, self.part, self.scored, self.drawn = found, part, scored, drawn
        self.options, self.limits = options, Limits(None, None, [])

    @property
    def id(self) -> str:
        return "graph"

    @property
    def words(self) -> list[str]:
        return [describe.describe(self.scored, name) for name in self.drawn]

    def maps(self) -> Iterator[LabelledAttention]:
        yield from map(self.part.label_edges, self.found.values())

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        for name in self.drawn:
            yield picture_name(name), neighbourhood(self.scored, name, classes=self.part.classes)

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        rows = self.options.rows
        if rows is not None or self.options.ids is None:
            degrees = self.part.stars.support.degrees[: self.part.stars.count]
            self.limits = limits(made, degrees, *() if rows is None else (rows,))
        yield Table("edges", edges(made, most_neighbours=self.limits.neighbours))
        yield Table("entropy", entropies(made, first=self.part.stars.count, most_nodes=self.limits.nodes))
