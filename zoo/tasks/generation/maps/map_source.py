"""The maps of a domain whose models write texts: all examples of a split as a table, and some of them drawn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch

from zoo.attention.observing.record import Recording
from zoo.decoding.hypothesis import Hypothesis
from zoo.maps.source import MapOptions, MappedExample, MapSource, Table
from zoo.tasks.batches import Examples
from zoo.tasks.generation.alignment import Forced
from zoo.tasks.generation.figures import TextFigures
from zoo.tasks.rows import in_order, in_pieces, spread


class WritingMaps(MapSource):
    """Writes a text of each example, and reads the one that won again, in a forced pass that maps come from.

    Args:
        module: The task, a `WritingTask`.
        data: Its data.
        records: All examples that were read, with `ids` and `numbers(split)`.
        figures: What the table is measured by.
        options: What is drawn.
    """

    noun: ClassVar[str]
    texts: ClassVar[str]
    """Name of the table of all texts, such as "translations"."""
    of_reference: ClassVar[str]
    """Name of the map of the reference, which truth is measured by."""
    module: Any
    data: Any

    def __init__(self, module: Any, data: Any, records: Any, figures: TextFigures, options: MapOptions) -> None:
        super().__init__(module.net, options)
        self.module, self.data, self.records, self.figures = module, data, records, figures
        self.split = data.mapped_split

    @abstractmethod
    def drawn(
        self, batch: Any, found: Recording, best: Hypothesis, of_best: Forced, of_reference: Any
    ) -> MappedExample:
        """Returns an example with its maps.

        Args:
            batch: A batch of this example.
            found: Recorded while the text that won was read.
            best: The text that won.
            of_best: Its forced pass.
            of_reference: The weights of the site that aligns while the given text was read; None: there is none.
        """

    @abstractmethod
    def columns(self, batch: Any) -> dict[str, list[Any]]:
        """Returns the rows of the table for a batch."""

    def names(self) -> list[str]:
        return list(self.records.ids)

    def typical(self, count: int) -> list[int]:
        return spread(self.records.numbers(self.split), count)

    def tables(self) -> Iterator[Table]:
        yield Table(self.texts, in_pieces(in_order(self.columns, self.data.loader(self.split))))

    def examples(self) -> Iterator[MappedExample]:
        for which in self.chosen:
            batch = self.batch(which)
            best = [texts[0] for texts in self.module.write(batch)]
            with torch.inference_mode(), self.recording() as found:
                of_best = self.module.forced(batch, best)
            of_reference = None if batch.targets is None else self.module.forced_references(batch).weights
            yield self.drawn(batch, found, best[0], of_best, of_reference)

    def judged(self, batch: Any, best: Sequence[Hypothesis], forced: Forced) -> tuple[Forced, dict[str, list[Any]]]:
        """Adds texts to the figures; returns the forced pass over the given ones, and their columns."""
        references: Forced = self.module.forced_references(batch)
        self.figures.add(batch, best, forced, references)
        losses = (-references.log_probability.double().sum(1) / batch.targets.lengths).tolist()
        return references, {"reference": [each[0] for each in batch.references], "loss": losses}

    def truth(self) -> dict[str, float | None]:
        found = {name: float(metric.compute()) for name, metric in self.figures.found().items()}
        return {name.removeprefix("truth/"): value for name, value in found.items() if name.startswith("truth/")}

    @property
    def truth_of(self) -> str:
        return f"{self.split} {self.noun}s, {self.of_reference}"

    @property
    def about(self) -> Mapping[str, Any]:
        return {f"{self.noun}s": len(self.data.examples(self.split).entries), "split": self.split}

    def summary(self, out: str) -> list[str]:
        of = f"test {self.noun}s" if self.split == "test" else f"{self.noun}s"
        return [
            f"{self.about[f'{self.noun}s']:,} {of} in {self.texts}.{self.options.table_format}, in {out}",
            *super().summary(out),
        ]

    def looks(self) -> list[str]:
        examples: Iterator[Any] = self.examples()
        return [example.said for example in examples]

    @cached_property
    def _examples(self) -> Examples:
        examples: Examples = self.data.examples("all")
        return examples

    def batch(self, position: int) -> Any:
        """Returns a batch of one example."""
        return self._examples.collate([self._examples.entries[position]])
