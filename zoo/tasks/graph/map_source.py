"""Maps of a graph, which is one example; pictures and words describe single nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from zoo.attention.observing.record import Recording
from zoo.errors import DataError
from zoo.maps import LabelledMap, labelled, words
from zoo.maps.export import sized
from zoo.maps.source import MapOptions, MappedExample, MapSource, NamedMap, Table, one_a_label, picture_name
from zoo.plurals import count_noun
from zoo.tasks.graph.batch import Data
from zoo.tasks.graph.figures import neighbourhood
from zoo.tasks.graph.graph import TEST
from zoo.tasks.graph.occlusion import OccludableNode
from zoo.tasks.graph.tables import Limits, edges, entropies, limits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zoo.tasks.graph.data import GraphData
    from zoo.tasks.graph.module import NodeClassifier


class GraphMaps(MapSource):
    """Computes maps, tables, descriptions of nodes and the truth score in one pass over the graph."""

    noun = "node"
    is_one_example = True

    def __init__(self, module: NodeClassifier, data: GraphData, options: MapOptions) -> None:
        super().__init__(module.net, options)
        self.module, self.data = module, data
        (self.batch,) = data.predict_dataloader()
        self._truth: dict[str, float | None] = {}
        self._site = ""
        self._layers = 0
        self._left_out: list[str] = []

    def names(self) -> list[str]:
        return self.batch.ids.tolist()  # type: ignore[no-any-return]

    def typical(self, count: int) -> list[int]:
        """Returns nodes with at least three neighbours, of different labels first."""
        degrees = self.batch.support.degrees.tolist()
        order = one_a_label(self.batch.y.tolist(), [degree > 2 for degree in degrees])
        return order[:count]

    def measured(self, count: int) -> list[int]:
        """Returns nodes like `typical`, but only of the test split, unless it is empty."""
        is_test = self.batch.split == TEST
        found = self.typical(len(self.batch.y))
        return [node for node in found if is_test[node] or not is_test.any()][:count]

    def occludable(self, position: int) -> list[OccludableNode]:
        return [OccludableNode(self.module, self.batch, position)]

    def examples(self) -> Iterator[MappedExample]:
        with torch.inference_mode(), self.module.recording() as scored, self.recording() as found:
            self.module(self.batch)
        if not len(found):
            budget = self.options.budget
            raise DataError(f"a budget of {budget:,} bytes holds no layer of this graph; they take {sized(found.cut)}")
        example = _Graph(found, self.batch, self._named(scored), self.names(), self.chosen, self.options.rows)
        self._layers, self._site = len(found), example.scored.site
        if "gold" in self.batch:
            (test,) = self.data.loader("test")
            self._truth = {"edge_auc": self.module.truth(test, self.module.scored(scored))}
        yield example
        self._left_out = example.limits.lines

    def truth(self) -> dict[str, float | None]:
        return self._truth

    @property
    def truth_of(self) -> str:
        return f"test nodes, {self._site}, average of its heads"

    @property
    def about(self) -> Mapping[str, Any]:
        return {"nodes": len(self.names())}

    def summary(self, out: str) -> list[str]:
        layers = f"{count_noun(self._layers, 'layer')}"
        pictures = f"{count_noun(len(self.chosen), 'picture')}"
        return [f"{layers}, {count_noun(len(self.names()), 'node')}, {pictures} in {out}", *self._left_out]

    def looks(self) -> list[str]:
        with torch.inference_mode(), self.module.recording() as scored:
            self.module(self.batch)
        found = self._named(scored)
        return [words.describe(found, self.names()[node]).partition(" attends to ")[2] for node in self.chosen]

    def _named(self, found: Recording) -> LabelledMap:
        """Returns the scored map of a recording, with names and gold."""
        names = self.names()
        gold = self.batch.gold if "gold" in self.batch else None
        return labelled(self.module.scored(found), {"source": names, "target": names}, gold=gold)


class _Graph(MappedExample):
    """The graph as an example, with pictures and words of some nodes from the scored map."""

    def __init__(
        self,
        found: Recording,
        batch: Data,
        scored: LabelledMap,
        names: Sequence[str],
        drawn: Sequence[int],
        rows: int,
    ) -> None:
        self.rows, self.limits = rows, Limits(None, None, [])
        self.found, self.batch, self.scored = found, batch, scored
        self.nodes, self.drawn = names, [names[node] for node in drawn]

    @property
    def id(self) -> str:
        return "graph"

    @property
    def words(self) -> list[str]:
        return [words.describe(self.scored, name) for name in self.drawn]

    def maps(self) -> Iterator[NamedMap]:
        ends = ("source", "target")
        gold = self.batch.gold if "gold" in self.batch else None
        for each in self.found.values():
            yield NamedMap(each, dict.fromkeys(ends, self.nodes), dict.fromkeys(ends, "node"), gold)

    def figures(self, made: Mapping[str, LabelledMap], number: int) -> Iterator[tuple[str, Figure]]:
        names = self.batch.label_names
        classes = [names[y] if y >= 0 else "" for y in self.batch.y.tolist()]
        for name in self.drawn:
            yield picture_name(name), neighbourhood(self.scored, name, classes=classes)

    def tables(self, made: Mapping[str, LabelledMap]) -> Iterator[Table]:
        self.limits = limits(made, self.batch.support.degrees, self.rows)
        yield Table("edges", edges(made, most_neighbours=self.limits.neighbours))
        yield Table("entropy", entropies(made, most_nodes=self.limits.nodes))
