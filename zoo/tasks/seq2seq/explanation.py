"""The maps of a domain whose models write texts: all examples of a split as a table, and some of them drawn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch

from zoo.attention.recording.recorder import Recording
from zoo.decoding.hypothesis import Hypothesis
from zoo.maps.explainer import ExplainedExample, MapOptions
from zoo.tasks.dataset_explainer import DatasetExplainer
from zoo.tasks.seq2seq.metrics import TextMetrics
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding


class Seq2SeqExplainer(DatasetExplainer):
    """Writes a text of each example, and reads the one that won again, in a forced pass that maps come from.

    Args:
        module: The task, a `Seq2SeqTask`.
        data: Its data.
        records: All examples that were read, with `ids` and `numbers(split)`.
        figures: What the table is measured by.
        options: What is drawn.
    """

    of_reference: ClassVar[str]
    """Name of the map of the reference, which truth is measured by."""

    def __init__(self, module: Any, data: Any, records: Any, figures: TextMetrics, options: MapOptions) -> None:
        super().__init__(module, data, records, options)
        self.figures = figures

    @abstractmethod
    def drawn(
        self, batch: Any, found: Recording, best: Hypothesis, of_best: ForcedDecoding, of_reference: Any
    ) -> ExplainedExample:
        """Returns an example with its maps.

        Args:
            batch: A batch of this example.
            found: Recorded while the text that won was read.
            best: The text that won.
            of_best: Its forced pass.
            of_reference: The weights of the site that aligns while the given text was read; None: there is none.
        """

    def examples(self) -> Iterator[ExplainedExample]:
        for which in self.chosen:
            batch = self.batch(which)
            best = [texts[0] for texts in self.module.write(batch)]
            with torch.inference_mode(), self.recording() as found:
                of_best = self.module.forced(batch, best)
            of_reference = None if batch.targets is None else self.module.forced_references(batch).weights
            yield self.drawn(batch, found, best[0], of_best, of_reference)

    def judged(
        self, batch: Any, best: Sequence[Hypothesis], forced: ForcedDecoding
    ) -> tuple[ForcedDecoding, dict[str, list[Any]]]:
        """Adds texts to the figures; returns the forced pass over the given ones, and their columns."""
        references: ForcedDecoding = self.module.forced_references(batch)
        self.figures.add(batch, best, forced, references)
        losses = (-references.log_probability.double().sum(1) / batch.targets.lengths).tolist()
        return references, {"reference": [each[0] for each in batch.references], "loss": losses}

    def truth(self) -> dict[str, float | None]:
        found = {name: float(metric.compute()) for name, metric in self.figures.found().items()}
        return {name.removeprefix("truth/"): value for name, value in found.items() if name.startswith("truth/")}

    @property
    def truth_of(self) -> str:
        return f"{self.split} {self.noun}s, {self.of_reference}"
