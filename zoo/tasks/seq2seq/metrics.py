"""The figures of texts that a model has written, and of given texts, as sums over batches and processes."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torchmetrics import Metric

from zoo import distributed
from zoo.decoding.hypothesis import Hypothesis
from zoo.tasks.seq2seq.batch import ReadableBatch
from zoo.tasks.seq2seq.score_metrics import CorpusScoreMetric, SumMetric
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding
from zoo.text import Perplexity, Score

_FEW = 5
"""Examples of which some may well have the same text."""


class CorpusScore(NamedTuple):
    """A score of all texts of a split: an entry of the collection of a domain.

    Attributes:
        score: The score, of `zoo.text`.
        names: Names of its figures that are reported.
        title: What the protocol calls it; "" if the score's signature begins with its name.
    """

    score: Score
    names: Sequence[str]
    title: str = ""

    def describe(self) -> str:
        """Returns how the score is computed, for the protocol."""
        return f"{self.title} {self.score.signature()}".lstrip()


class Scored(NamedTuple):
    """One example with the text that was written of it.

    Attributes:
        batch: The batch that it is in.
        number: Its number in the batch.
        hypothesis: The text.
        references: The given texts that it is compared with.
        sums: Figure -> the sums of its score.
        weights: Weight of each place of the source in a forced pass over the text; None if there are none.
        of_reference: The same over the given text.
    """

    batch: Any
    number: int
    hypothesis: Hypothesis
    references: Sequence[str]
    sums: Mapping[str, list[float]]
    weights: Float[Tensor, "n k"] | None
    of_reference: Float[Tensor, "m k"] | None


class TextMetrics(nn.Module, ABC):
    """Loss and perplexity of the given texts, and scores of the written ones; a domain adds its own figures.

    Args:
        scores: The scores. A new one is an entry here, and nothing else.
        more: Metrics of the domain, by name, which `add_example` updates.
    """

    def __init__(self, scores: Sequence[CorpusScore], more: Mapping[str, Metric]) -> None:
        super().__init__()
        self.scores = scores
        perplexity = Perplexity()
        self.metrics = nn.ModuleDict(
            {
                "test/loss": distributed.GlobalMean(),
                "test/perplexity": SumMetric(2, lambda sums: perplexity.compute(sums)["perplexity"]),
                **{f"test/{name}": CorpusScoreMetric(entry.score, name) for entry in scores for name in entry.names},
                **more,
            }
        )
        self.tables: dict[str, list[dict[str, Any]]] = {}
        """Tables of the last split that was evaluated."""
        self._written = 0
        self._texts: set[str] = set()

    @property
    def only_text(self) -> str | None:
        """The text that was written for every example of this process; None if there are several, or few examples."""
        return next(iter(self._texts)) if len(self._texts) == 1 and self._written >= _FEW else None

    def find_score(self, name: str) -> Score:
        """Returns the score that has a figure of this name."""
        return next(entry.score for entry in self.scores if name in entry.names)

    def copy_empty(self) -> Self:
        """Returns the same metrics with nothing counted, for another pass."""
        metrics = copy.deepcopy(self)
        metrics.reset()
        return metrics

    def reset(self) -> None:
        self._written = 0
        self._texts.clear()
        for metric in self.metrics.values():
            metric.reset()  # type: ignore[operator]

    def add(
        self,
        batch: ReadableBatch,
        written: Sequence[Hypothesis],
        of_written: ForcedDecoding,
        of_references: ForcedDecoding,
    ) -> None:
        """Adds a batch.

        Args:
            batch: The examples, with their references.
            written: The text of each.
            of_written, of_references: Forced passes over the written texts and over the references.
        """
        losses = -of_references.log_probability[batch.known_targets.is_real].double()
        self.update("test/loss", losses)
        self.update("test/perplexity", [float(losses.sum()), len(losses)])
        for number, (hypothesis, references) in enumerate(zip(written, batch.comparable_references, strict=True)):
            text = batch.language.text(hypothesis.tokens)
            self._written += 1
            if len(self._texts) < 2:
                self._texts.add(text)
            statistics: dict[str, list[float]] = {}
            for entry in self.scores:
                statistics |= dict.fromkeys(entry.names, entry.score.statistics([text], [references]))
            for name, sums in statistics.items():
                self.update(f"test/{name}", sums)
            weights = (None if each.weights is None else each.weights[number] for each in (of_written, of_references))
            self.add_example(Scored(batch, number, hypothesis, references, statistics, *weights))

    @abstractmethod
    def add_example(self, scored: Scored) -> None:
        """Adds what the domain counts of an example."""

    def find_counted(self) -> dict[str, Metric]:
        """Returns the metrics that something was counted for, in any process."""
        metrics: dict[str, Any] = dict(self.metrics.items())
        return {name: metric for name, metric in metrics.items() if distributed.all_reduce_any(_has_counted(metric))}

    def finalize(self) -> None:
        """Makes the tables, of all processes."""

    @property
    def device(self) -> torch.device:
        metric: Any = self.metrics["test/loss"]
        return metric.total.device  # type: ignore[no-any-return]

    def update(self, name: str, values: Any) -> None:
        """Adds to one metric."""
        metric: Any = self.metrics[name]
        metric.update(values)


class LengthBuckets:
    """Sums of a corpus score for each class of lengths.

    Args:
        score: The score.
        ends: Lengths at which the classes end; the last class has no end.
    """

    def __init__(self, score: Score, ends: Sequence[int]) -> None:
        self.ends = ends
        self._sums = torch.zeros(len(ends) + 1, 1 + score.size, dtype=torch.float64)

    def reset(self) -> None:
        self._sums.zero_()

    def add(self, length: int, sums: Sequence[float]) -> None:
        """Adds the sums of one example."""
        number = next((at for at, end in enumerate(self.ends) if length <= end), len(self.ends))
        self._sums[number] += torch.tensor([1.0, *sums], dtype=torch.float64)

    def rows(
        self, length: str, examples: str, figures: Callable[[list[float]], Mapping[str, Any]], device: torch.device
    ) -> list[dict[str, Any]]:
        """Returns a row for each class that has examples, of all processes.

        Args:
            length: Name of the column of lengths.
            examples: Name of the column of the number of examples.
            figures: Computes the other columns of the sums.
            device: The device of the processes.
        """
        rows, first = [], 1
        for last, (count, *sums) in zip(
            (*self.ends, None), distributed.all_reduce_sum(self._sums.to(device)).tolist(), strict=True
        ):
            if count:
                classes = f"{first}-{last}" if last else f"{first} or more"
                rows.append({length: classes, examples: int(count), **figures(sums)})
            first = last + 1 if last else first
        return rows


def _has_counted(metric: Metric) -> bool:
    return any(bool(state.any()) for state in cast("dict[str, Tensor]", metric.metric_state).values())
