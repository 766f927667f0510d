"""What the tasks of question answering share: losses, metrics, predictions, and where the net looked."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import distributed
from zoo.attention import AttentionMap
from zoo.errors import ConfigError
from zoo.optim import OptimizerConfig
from zoo.tasks.answering.attention_targets import ScoredMap, pointing_hits
from zoo.tasks.answering.batch import QABatch, ReadableNLIBatch, ReadableQABatch, ReadableVQABatch
from zoo.tasks.base import Invariance, Task
from zoo.tasks.baselines import Baseline, predict_majority
from zoo.tasks.initial_vectors import initialise_vectors
from zoo.types import Probability, validate_ranges

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.answering.data.examples import Content
    from zoo.tasks.answering.datamodule import AnswerData
    from zoo.tasks.answering.explanation import AnswerExplainer
    from zoo.tasks.answering.perturbation import PerturbableQuestion

ReadableBatch = TypeVar("ReadableBatch", bound=ReadableQABatch)
ChoiceBatch = TypeVar("ChoiceBatch", ReadableVQABatch, ReadableNLIBatch)
Output = TypeVar("Output")
"""What the net of a task returns."""


class AnsweringTask(Task, Generic[ReadableBatch, Output]):
    """The base class of all tasks of question answering.

    Args:
        net: The network.
        scored: The map that is compared with gold.
        optimization: Optimizer, schedule, frozen layers and rates.
        vectors: Text file of word vectors to start training from, as wide as those of the net; or `corpus` to learn
            them from co-occurrences in the training texts. Default: random ones.
        spread: Root mean square of their entries, to which they are scaled. None: they stay as they are.
    """

    primary_mode = "max"
    measures: ClassVar[tuple[str, ...]]
    """Names of the measures of an answer, each a number from 0 to 1."""

    def __init__(
        self,
        *,
        net: nn.Module,
        scored: ScoredMap,
        optimization: OptimizerConfig,
        vectors: str | None = None,
        spread: float | None = None,
    ) -> None:
        super().__init__(optimization=optimization)
        self.net = net
        self.scored = scored
        self.initial_vectors = vectors
        self.spread = spread
        names = [f"{split}/{name}" for split in ("val", "test") for name in ("loss", *self.measures)]
        self.metrics = nn.ModuleDict({name: distributed.GlobalMean() for name in (*names, "truth/pointing")})
        self._kinds: dict[str, Counter[str]] = {}

    @abstractmethod
    def compute_losses(
        self, output: Output, targets: Int[Tensor, "b *two"], *, smoothing: float = 0.0
    ) -> Float[Tensor, " b"]:
        """Returns the loss of each answer.

        Args:
            output: What the net gave.
            targets: The answers, all of which are known.
            smoothing: Share of the target probability that is spread evenly over all answers.
        """

    @abstractmethod
    def select_output(self, output: Output, mask: Bool[Tensor, " b"]) -> Output:
        """Returns what the net gave for some questions."""

    @abstractmethod
    def choose_answers(self, output: Output) -> Int[Tensor, "b *two"]:
        """Returns the most probable answer to each question, in the form of `QABatch.targets`."""

    @abstractmethod
    def compute_log_probability(self, output: Output, answer: Int[Tensor, "*two"]) -> Float[Tensor, " b"]:
        """Returns the log-probability of one answer for each question, in double precision."""

    @abstractmethod
    def measure(self, output: Output, batch: ReadableBatch) -> dict[str, Float[Tensor, " b"]]:
        """Returns the measures of the answer to each question."""

    @abstractmethod
    def predict(self, output: Output, batch: ReadableBatch) -> dict[str, list[Any]]:
        """Returns the columns `prediction` and `probability`."""

    @abstractmethod
    def scored_gold(self, batch: ReadableBatch) -> Bool[Tensor, "b q k"] | None:
        """Returns the gold of the map that is scored; None if it is not known."""

    @abstractmethod
    def perturb(self, batch: ReadableBatch) -> PerturbableQuestion[Any]:
        """Returns a batch of one question, whose inputs are the keys of the map that is scored."""

    smoothing: float = 0.0

    def forward(self, batch: QABatch[Any]) -> Output:
        output: Output = self.net(batch)
        return output

    def begin(self, data: AnswerData) -> None:
        """Gives the net the initial word vectors."""
        if self.initial_vectors is None:
            return
        content: Content[Any] = data.content

        def iter_texts() -> Iterator[Int[np.ndarray, " n"]]:
            for number in content.records.numbers("train"):
                yield from (rows[number] for rows in content.texts)

        table: Any = self.net.vectors
        names = content.language.vocabulary.tokens
        initialise_vectors(table, self.initial_vectors, names, iter_texts, spread=self.spread)

    def training_step(self, batch: QABatch[Any], batch_idx: int) -> Tensor:
        losses = self._losses_of_known(self.net(batch), batch, smoothing=self.smoothing)
        loss = distributed.mean_loss(losses.sum(), len(losses))
        self.log_training({"train/loss": loss}, len(batch))
        return loss

    def validation_step(self, batch: ReadableBatch, batch_idx: int) -> None:
        self._evaluate("val", self.net(batch), batch)

    def test_step(self, batch: ReadableBatch, batch_idx: int) -> None:
        """Updates all metrics. They are logged as `test/...` for every split; `run` renames them after the split."""
        output, scored = self.forward_with_map(batch)
        measures = self._evaluate("test", output, batch)
        for kind, value in zip(batch.kinds, measures[self.measures[0]].tolist(), strict=True):
            self._kinds.setdefault(kind, Counter()).update({"right": value, "count": 1})
        gold = self.scored_gold(batch)
        if scored is not None and gold is not None:
            self._update({"truth/pointing": pointing_hits(scored, gold)}, len(batch))

    def on_test_epoch_start(self) -> None:
        self._kinds = {}

    def on_test_epoch_end(self) -> None:
        together: dict[str, Counter[str]] = {}
        for part in distributed.all_gather_object({kind: dict(counts) for kind, counts in self._kinds.items()}):
            for kind, counts in part.items():
                together.setdefault(kind, Counter()).update(counts)
        self._kinds = together

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the first measure of the last evaluated split by kind of question, if there are kinds."""
        if not any(self._kinds):
            return {}
        measure, kinds = self.measures[0], sorted(self._kinds.items())
        return {
            "kinds": [
                {"kind": kind, "questions": int(counts["count"]), measure: counts["right"] / counts["count"]}
                for kind, counts in kinds
            ]
        }

    def forward_with_map(self, batch: ReadableBatch) -> tuple[Output, AttentionMap | None]:
        """Returns what the net gives, and the map that is scored; None if its attention has no weights."""
        return self.scored.record(self.net, batch)

    def explain(self, batch: ReadableBatch) -> AttentionMap:
        """Returns where the net looked: the map `scored`."""
        scored = self.forward_with_map(batch)[1]
        if scored is None:
            raise ConfigError("this model has no map of what it looked at: its attention has no weights")
        return scored

    def predict_step(self, batch: ReadableBatch, batch_idx: int = 0) -> dict[str, list[Any]]:
        """Returns columns with an entry per question; `loss` is None if the answer is not known."""
        return self.columns(self.net(batch), batch)

    def columns(self, output: Output, batch: ReadableBatch) -> dict[str, list[Any]]:
        """Returns columns with an entry per question, from what the net gave."""
        losses = iter(self._losses_of_known(output, batch).tolist())
        return {
            "id": list(batch.ids),
            "split": list(batch.splits),
            **self.text_columns(batch),
            "label": [written.answer for written in batch.written],
            **self.predict(output, batch),
            "loss": [next(losses) if is_known else None for is_known in batch.is_known.tolist()],
        }

    def text_columns(self, batch: ReadableBatch) -> dict[str, list[str]]:
        """Returns the columns in which people read the questions again."""
        return {self.input_columns[-1]: [written.question for written in batch.written]}

    @property
    def input_columns(self) -> Sequence[str]:
        """The columns of the user's table, but for pictures and passages, which are long."""
        return ("question",)

    @property
    def reference_column(self) -> str:
        return "answer"

    def predictor(self) -> Callable[[Any], dict[str, list[Any]]]:
        """Returns the function that computes the columns of `zoo predict`."""

        def rename_columns(batch: ReadableBatch) -> dict[str, list[Any]]:
            columns = self.columns(self.net(batch), batch)
            named = {self.reference_column if name == "label" else name: values for name, values in columns.items()}
            del named["loss"]
            return named

        return rename_columns

    @abstractmethod
    def maps(self, data: Any, options: MapOptions) -> AnswerExplainer[ReadableBatch]:
        """Returns the maps that `zoo maps` writes."""

    def invariants(self, batch: QABatch[Any]) -> Sequence[Invariance]:
        """States that an answer depends on its own question, picture and passage alone."""
        if len(batch) < 2:
            return ()
        alone = batch.select(torch.zeros(1, dtype=torch.int64))
        return (Invariance("other questions of the batch and padding", alone, alone.trim_output),)

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Matches the vectors of words by token."""
        vectors = [name for name in self.state_dict() if name.endswith("vectors.table.weight")]
        return {"tokens": dict.fromkeys(vectors, 0), "answers": {}}

    def layer_groups(self) -> list[str]:
        return [f"net.{name}" for name, part in self.net.named_children() if any(True for _ in part.parameters())]

    def _losses_of_known(
        self, output: Output, batch: QABatch[Any], *, smoothing: float = 0.0
    ) -> Float[Tensor, " known"]:
        """Returns the losses of the questions whose answers are known."""
        known = batch.is_known
        return self.compute_losses(self.select_output(output, known), batch.targets[known], smoothing=smoothing)

    def _evaluate(self, split: str, output: Output, batch: ReadableBatch) -> dict[str, Tensor]:
        """Updates and logs loss and measures; returns the measures."""
        measures = self.measure(output, batch)
        values = {"loss": self._losses_of_known(output, batch), **measures}
        self._update({f"{split}/{name}": part for name, part in values.items()}, len(batch))
        return measures

    def _update(self, values: dict[str, Shaped[Tensor, " _"]], examples: int) -> None:
        """Updates metrics with the values of examples, and logs them."""
        metrics: dict[str, Any] = {name: self.metrics[name] for name in values}
        for name, metric in metrics.items():
            metric.update(values[name])
        self.log_evaluation(metrics, examples)


@validate_ranges
class AnswerClassifier(AnsweringTask[ChoiceBatch, Tensor]):
    """Cross-entropy of the answers of a set.

    An answer that is not in the set, which evaluation may have, counts as wrong and has no loss.

    Args:
        net: The network, whose result are the logits of the answers.
        scored: The map that is compared with gold.
        optimization: Optimizer, schedule, frozen layers and rates.
        smoothing: Share of the target probability that is spread evenly over all answers in training.
        vectors, spread: See `AnsweringTask`.
    """

    primary = "val/accuracy"
    headline: ClassVar[tuple[str, ...]] = ("accuracy", "loss")
    measures = ("accuracy",)

    def __init__(
        self,
        *,
        net: nn.Module,
        scored: ScoredMap,
        optimization: OptimizerConfig,
        smoothing: Probability,
        vectors: str | None = None,
        spread: float | None = None,
    ) -> None:
        super().__init__(net=net, scored=scored, optimization=optimization, vectors=vectors, spread=spread)
        self.smoothing = smoothing

    def compute_losses(
        self, output: Float[Tensor, "b answers"], targets: Int[Tensor, " b"], *, smoothing: float = 0.0
    ) -> Float[Tensor, " b"]:
        return F.cross_entropy(output, targets, reduction="none", label_smoothing=smoothing)

    def select_output(self, output: Float[Tensor, "b answers"], mask: Bool[Tensor, " b"]) -> Float[Tensor, "k answers"]:
        return output[mask]

    def choose_answers(self, output: Float[Tensor, "b answers"]) -> Int[Tensor, " b"]:
        return output.argmax(-1)

    def compute_log_probability(
        self, output: Float[Tensor, "b answers"], answer: Int[Tensor, ""]
    ) -> Float[Tensor, " b"]:
        return output.double().log_softmax(-1)[:, answer]

    def measure(self, output: Float[Tensor, "b answers"], batch: ChoiceBatch) -> dict[str, Float[Tensor, " b"]]:
        return {"accuracy": (output.argmax(-1) == batch.answers).float()}

    def predict(self, output: Float[Tensor, "b answers"], batch: ChoiceBatch) -> dict[str, list[Any]]:
        probability, best = output.float().softmax(-1).max(-1)
        return {
            "prediction": [batch.answer_names[number] for number in best.tolist()],
            "probability": probability.tolist(),
        }

    def baselines(self, data: AnswerData) -> Sequence[Baseline]:
        records, classes = data.content.records, len(data.content.answer_names)
        is_known = np.array([bool(answer) for answer in records.answers])
        is_unlearned = is_known & (data.content.answers < 0)  # an answer that no model can give is a wrong one
        return [predict_majority(np.where(is_unlearned, classes, data.content.answers), records.splits, classes + 1)]

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Matches the vectors of words by token, and the rows of the last layer by answer."""
        return super().vocabularies() | {"answers": {"net.head.weight": 0, "net.head.bias": 0}}
