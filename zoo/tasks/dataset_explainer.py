"""The maps of a domain whose examples stand side by side: a row for each of a split, and some of them drawn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

from zoo.data.loader import Loader
from zoo.errors import count_noun
from zoo.maps.explainer import Explainer, MapOptions, Table
from zoo.tasks.batching import Examples
from zoo.tasks.prediction_order import iter_rows, spread, to_frames


class DatasetExplainer(Explainer):
    """Writes a table with a row for each example of a split, and draws the chosen ones, each from a batch of its own.

    Args:
        module: The task.
        data: Its data.
        records: All examples that were read, with `ids` and `numbers(split)`.
        options: What is drawn.
    """

    noun: ClassVar[str]
    table: ClassVar[str]
    """Name of the table, such as "documents"."""
    module: Any
    data: Any

    def __init__(self, module: Any, data: Any, records: Any, options: MapOptions) -> None:
        super().__init__(module.net, options)
        self.module, self.data, self.records = module, data, records
        self.split = data.mapped_split

    @abstractmethod
    def columns(self, batch: Any) -> dict[str, list[Any]]:
        """Returns the rows of the table for a batch."""

    @property
    def loader(self) -> Loader:
        """The batches that rows are made of."""
        loader: Loader = self.data.loader(self.split)
        return loader

    def names(self) -> list[str]:
        return list(self.records.ids)

    def sample(self, count: int) -> list[int]:
        return self.sample_for_faithfulness(count)

    def sample_for_faithfulness(self, count: int) -> list[int]:
        """Returns examples at equal distances in the split, since files may be sorted."""
        return spread(self.records.numbers(self.split), count)

    def tables(self) -> Iterator[Table]:
        yield Table(self.table, to_frames(iter_rows(self.columns, self.loader)))

    @property
    def about(self) -> Mapping[str, Any]:
        return {f"{self.noun}s": len(self.data.examples(self.split).entries), "split": self.split}

    def summary(self, out: str) -> list[str]:
        noun = f"test {self.noun}" if self.split == "test" else self.noun
        return [
            f"{count_noun(self.about[f'{self.noun}s'], noun)} in {self.table}.{self.options.table_format}, in {out}",
            *super().summary(out),
        ]

    def describe_chosen(self) -> list[str]:
        examples: Iterator[Any] = self.examples()
        return [example.description for example in examples]

    @cached_property
    def _examples(self) -> Examples:
        examples: Examples = self.data.examples("all")
        return examples

    def batch(self, position: int) -> Any:
        """Returns a batch of one example."""
        return self._examples.collate([self._examples.entries[position]])
