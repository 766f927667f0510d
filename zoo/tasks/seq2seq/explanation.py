"""Explains models that write texts: a row for each example of a split, and the maps of some of them.

A text that the model wrote is read again by a forced pass, in which its maps are recorded. A domain says what the
places of its source are (`Seq2SeqExample.axes`), and how a source looks without some of them (`PerturbableSource`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.attention.recording.recorder import Recording
from zoo.decoding.hypothesis import Hypothesis
from zoo.decoding.teacher_forcing import force_decode
from zoo.errors import ConfigError
from zoo.maps.describe import number
from zoo.maps.explainer import Axis, ExplainedExample, MapOptions, SiteAxes
from zoo.maps.perturbation import Perturbable
from zoo.tasks.dataset_explainer import DatasetExplainer
from zoo.tasks.seq2seq.batch import AnyBatch
from zoo.tasks.seq2seq.decoding_config import begins
from zoo.tasks.seq2seq.gradients import inputs_of
from zoo.tasks.seq2seq.metrics import TextMetrics
from zoo.tasks.seq2seq.text_codec import BEGIN, END
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding


class Seq2SeqExample(ExplainedExample):
    """A source, the text that the model wrote, and how a forced pass over the text attended to the source.

    Args:
        module: The task.
        batch: Batch of one example, as people read it.
        found: Recording of the pass over the text.
        best: The text.
        written: The forced pass over the text.
        reference: The forced pass over the given text; None if there is none.
    """

    sites: Sequence[SiteAxes] = (
        SiteAxes("encoder.*", "source", "source"),
        SiteAxes("*.cross.*", "written", "source"),
        SiteAxes("decoder.attention.*", "written", "source"),
        SiteAxes("decoder.*", "read", "read"),
    )

    def __init__(
        self,
        module: Any,
        batch: Any,
        found: Recording,
        best: Hypothesis,
        written: ForcedDecoding,
        reference: ForcedDecoding | None,
    ) -> None:
        self.module, self.net, self.batch, self.found, self.best = module, module.net, batch, found, best
        self.language, self.as_read = batch.language, batch.written[0]
        self.weights = None if written.weights is None else written.weights[0]
        self.log_probability = written.log_probability[0]
        self.reference_weights = None if reference is None or reference.weights is None else reference.weights[0]

    @property
    @abstractmethod
    def source(self) -> Axis:
        """What the places of the source are, by tokens."""

    @property
    def axes(self) -> Mapping[str, Axis]:
        written = self.best.target(END)
        return {
            "source": self.source,
            "written": Axis("token", self.language.pieces(written)),
            "read": Axis("token", self.language.pieces([BEGIN, *written[:-1]])),
        }

    @property
    def id(self) -> str:
        name: str = self.batch.ids[0]
        return name

    @property
    def text(self) -> str:
        """The text that the model wrote."""
        text: str = self.language.text(self.best.tokens)
        return text

    @property
    def about(self) -> Mapping[str, Any]:
        facts = {self.module.text_noun: self.text, "score": self.best.score, "probability": self.best.probability}
        references = self.as_read.references
        return {**facts, **self.facts, **({"reference": references[0]} if references else {})}

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts about the source, which are stored with the example."""
        return {}

    @property
    @abstractmethod
    def description(self) -> str:
        """Where the model looked for each word, in words."""

    @property
    def words(self) -> Sequence[str]:
        return [f"{self.id}: {self.text} ({number(self.best.probability)}); {self.description}"]


class PerturbableSource(Perturbable):
    """A source whose answer is the text that the model wrote of all of it.

    The probability is the geometric mean over the tokens of the text, so that it does not depend on the length. The
    map's value of an input is the sum of its weights.

    Args:
        module: The task.
        batch: Batch of one example.
    """

    source: Any

    def __init__(self, module: Any, batch: AnyBatch) -> None:
        self.module, self.source = module, batch.source
        best = module.write(batch)[0][0]
        self.answer = best.target(END)
        weights = module.force_decode(batch, [best]).weights
        if weights is None:
            raise ConfigError(f"--faithfulness: this model has no map of its {module.source_noun}")
        self.attention = self.sum_weights(weights[0], best)

    def sum_weights(self, weights: Float[Tensor, "n k"], best: Hypothesis) -> Float[Tensor, " i"]:
        """Returns the map's value of each input."""
        return weights.sum(0)

    @abstractmethod
    def mask(self, keep: Bool[Tensor, "v i"]) -> Any:
        """Returns a source for each variant, with the inputs that it keeps."""

    def sum_inputs(self, rows: Float[Tensor, " r"]) -> Float[Tensor, " i"]:
        """Sums numbers of the rows that the net reads over the rows of each input."""
        return rows

    def score_batch(self, keep: Bool[Tensor, "v i"]) -> Float[Tensor, " v"]:
        return self._log_probability(self.mask(keep)).exp()

    def gradient(self) -> Float[Tensor, " i"]:
        with torch.enable_grad(), inputs_of(self.module.net) as inputs:
            (gradient,) = torch.autograd.grad(self._log_probability(self.source).sum(), inputs)
        return self.sum_inputs((gradient.double() * inputs[0].detach()).sum(-1).flatten()).abs()

    def _log_probability(self, source: Any) -> Float[Tensor, " b"]:
        targets = [self.answer] * len(source)
        return force_decode(self.module.net, source, begins(source), targets).double().mean(1)


class Seq2SeqExplainer(DatasetExplainer):
    """Writes a text of each example, and reads the one that won again, in a forced pass that maps come from.

    Args:
        module: The task, a `Seq2SeqTask`.
        data: Its data.
        records: All examples that were read, with `ids` and `numbers(split)`.
        options: What is drawn.
    """

    example: ClassVar[type[Seq2SeqExample]]
    perturbable: ClassVar[type[PerturbableSource]]
    of_reference: ClassVar[str]
    """Name of the map of the reference, which truth is measured by."""

    def __init__(self, module: Any, data: Any, records: Any, options: MapOptions) -> None:
        super().__init__(module, data, records, options)
        self.figures: TextMetrics = module.figures.copy_empty()

    def examples(self) -> Iterator[Seq2SeqExample]:
        for which in self.positions:
            batch = self.batch(which)
            best = [texts[0] for texts in self.module.write(batch)]
            with torch.inference_mode(), self.record_sites() as found:
                written = self.module.force_decode(batch, best)
            reference = None if batch.targets is None else self.module.force_references(batch)
            yield self.example(self.module, batch, found, best[0], written, reference)

    def make_perturbable(self, position: int) -> list[PerturbableSource]:
        return [self.perturbable(self.module, self.batch(position))]

    def judge(
        self, batch: Any, best: Sequence[Hypothesis], forced: ForcedDecoding
    ) -> tuple[ForcedDecoding, dict[str, list[Any]]]:
        """Adds texts to the figures; returns the forced pass over the given ones, and their columns."""
        references: ForcedDecoding = self.module.force_references(batch)
        self.figures.add(batch, best, forced, references)
        losses = (-references.log_probability.double().sum(1) / batch.targets.lengths).tolist()
        return references, {"reference": [each[0] for each in batch.references], "loss": losses}

    def write_columns(self, batch: Any, best: Sequence[Hypothesis]) -> dict[str, list[Any]]:
        """Returns the text of each example, its score, its probability, and whether it ended."""
        return {
            self.module.text_noun: [batch.language.text(each.tokens) for each in best],
            "score": [each.score for each in best],
            "probability": [each.probability for each in best],
            "ended": [each.ended for each in best],
        }

    def truth(self) -> dict[str, float | None]:
        found = {name: float(metric.compute()) for name, metric in self.figures.find_counted().items()}
        return {name.removeprefix("truth/"): value for name, value in found.items() if name.startswith("truth/")}

    @property
    def truth_label(self) -> str:
        return f"{self.split} {self.noun}s, {self.of_reference}"
