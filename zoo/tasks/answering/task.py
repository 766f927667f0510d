"""Question answering: the answer of a set, or a part of a passage, and where the net looked."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric

from zoo import distributed
from zoo.attention import AttentionMap
from zoo.optim import OptimizerConfig
from zoo.tasks.answering.attention_targets import MapLevel, explained, gold_of, level_of, looked, pointing_hits
from zoo.tasks.answering.batch import QABatch
from zoo.tasks.answering.data.answer_set import COLUMNS
from zoo.tasks.answering.models.coattention import Level
from zoo.tasks.answering.spans import best_spans, span_losses
from zoo.tasks.base import Invariance, Task
from zoo.tasks.baselines import HELD_OUT, Baseline, predict_majority
from zoo.tasks.initial_vectors import initialise_vectors
from zoo.text.metrics.squad import normalize_answer, word_f1
from zoo.types import PositiveFloat, PositiveInt, Probability, validate_ranges

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.answering.data.answer_set import About
    from zoo.tasks.answering.data.examples import Content
    from zoo.tasks.answering.datamodule import AnswerData
    from zoo.tasks.answering.explanation import AnswerExplainer


class Answerer(Task):
    """What all tasks of question answering share.

    Args:
        net: The network.
        about: What the questions are about.
        optimization: Optimizer, schedule, frozen layers and rates.
        measures: Names of the measures of an answer, each a number from 0 to 1.
        vectors: Text file of word vectors to start training from, as wide as those of the net; or `corpus` to learn
            them from co-occurrences in the training texts. Default: random ones.
        spread: Root mean square of their entries, to which they are scaled. None: they stay as they are.
    """

    primary_mode = "max"

    def __init__(
        self,
        *,
        net: nn.Module,
        about: About,
        optimization: OptimizerConfig,
        measures: tuple[str, ...],
        vectors: str | None = None,
        spread: float | None = None,
    ) -> None:
        super().__init__(optimization=optimization)
        self.net = net
        self.initial_vectors = vectors
        self.spread = spread
        self.subject = about
        self.level: Level | None = None
        """The level of the question whose map is scored; None: the mean over the levels, or a net without levels."""
        self.measures = measures
        names = [f"{split}_{name}" for split in ("val", "test") for name in ("loss", *measures)]
        self.figures = nn.ModuleDict({name: distributed.GlobalMean() for name in (*names, "pointing")})
        self._kinds: dict[str, Counter[str]] = {}

    @abstractmethod
    def losses(self, given: Any, batch: QABatch, *, training: bool = False) -> Float[Tensor, " k"]:
        """Returns the loss of each question whose answer is known, from what the net gave."""

    @abstractmethod
    def measured(self, given: Any, batch: QABatch) -> dict[str, Float[Tensor, " k"]]:
        """Returns the measures of the answer to each question."""

    @abstractmethod
    def answered(self, given: Any, batch: QABatch) -> dict[str, list[Any]]:
        """Returns the columns `prediction` and `probability`."""

    def forward(self, batch: QABatch) -> Any:
        return self.net(batch)

    def begin(self, data: AnswerData) -> None:
        """Gives the net the initial word vectors."""
        if self.initial_vectors is None:
            return
        content: Content = data.content
        rows = [content.questions, *([] if content.passages is None else [content.passages])]

        def texts() -> Iterator[Int[np.ndarray, " n"]]:
            for number in content.asked.numbers("train"):
                yield from (each[number] for each in rows)

        table: Any = self.net.vectors
        names = content.language.vocabulary.tokens
        initialise_vectors(table, self.initial_vectors, names, texts, spread=self.spread)

    def training_step(self, batch: QABatch, batch_idx: int) -> Tensor:
        losses = self.losses(self.net(batch), batch, training=True)
        loss = distributed.mean_loss(losses.sum(), len(losses))
        self.log_training({"train/loss": loss}, len(batch))
        return loss

    def validation_step(self, batch: QABatch, batch_idx: int) -> None:
        self._figure("val", self.net(batch), batch)

    def test_step(self, batch: QABatch, batch_idx: int) -> None:
        """Updates all metrics. They are logged as `test/...` for every split; `run` renames them after the split."""
        given, seen = looked(self.net, batch, self.subject, self.level)
        measures = self._figure("test", given, batch)
        for kind, value in zip(batch.kinds, measures[self.measures[0]].tolist(), strict=True):
            self._kinds.setdefault(kind, Counter()).update({"right": value, "count": 1})
        gold = gold_of(batch, self.subject, self.grid)
        if seen is not None and gold is not None:
            points: Any = self.figures["pointing"]
            points.update(pointing_hits(seen, gold))
            self.log("truth/pointing", points, on_step=False, on_epoch=True, batch_size=len(batch))

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of the cells of a picture."""
        return getattr(getattr(self.net, "picture", None), "grid", None)

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
                {"kind": kind, "questions": int(each["count"]), measure: each["right"] / each["count"]}
                for kind, each in kinds
            ]
        }

    def explain(self, batch: QABatch) -> AttentionMap:
        """Returns where the net looked: the site of `looking.scored_site`."""
        return explained(self.net, batch, self.subject, self.level)

    def predict_step(self, batch: QABatch, batch_idx: int = 0) -> dict[str, list[Any]]:
        """Returns columns with an entry per question; `loss` is None if the answer is not known."""
        return self.columns(self.net(batch), batch)

    def columns(self, given: Any, batch: QABatch) -> dict[str, list[Any]]:
        """Returns columns with an entry per question, from what the net gave."""
        known = self._known(batch).tolist()
        losses = iter(self.losses(given, batch).tolist())
        labels = [""] * len(batch) if batch.written is None else [each.answer for each in batch.written]
        return {
            "id": list(batch.ids),
            "split": list(batch.splits),
            **self._asked(batch),
            "label": labels,
            **self.answered(given, batch),
            "loss": [next(losses) if is_known else None for is_known in known],
        }

    @property
    def input_columns(self) -> Sequence[str]:
        """The columns of the user's table, but for pictures and passages, which are long."""
        of_subject, of_question, _ = COLUMNS[self.subject]
        return (of_subject, of_question) if self.subject == "premise" else (of_question,)

    @property
    def reference_column(self) -> str:
        return COLUMNS[self.subject][2]

    def predictor(self) -> Callable[[Any], dict[str, list[Any]]]:
        """Returns the function that computes the columns of `zoo predict`."""

        def said(batch: QABatch) -> dict[str, list[Any]]:
            columns = self.columns(self.net(batch), batch)
            named = {self.reference_column if name == "label" else name: found for name, found in columns.items()}
            del named["loss"]
            return named

        return said

    def maps(self, data: AnswerData, options: MapOptions) -> AnswerExplainer:
        from zoo.tasks.answering.explanation import AnswerExplainer

        return AnswerExplainer(self, data, options)

    def invariants(self, batch: QABatch) -> Sequence[Invariance]:
        """States that an answer depends on its own question, picture and passage alone."""
        if len(batch) < 2:
            return ()
        alone = batch.first()
        places = None if alone.passage is None else alone.passage.tokens.shape[1]
        return (Invariance("other questions of the batch and padding", alone, lambda out: _of_first(out, places)),)

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Matches the vectors of words by token, and the rows of the last layer by answer."""
        vectors = [name for name in self.state_dict() if name.endswith("vectors.table.weight")]
        answers = {"net.head.weight": 0, "net.head.bias": 0} if self.subject != "passage" else {}
        return {"tokens": dict.fromkeys(vectors, 0), "answers": answers}

    def layer_groups(self) -> list[str]:
        return [f"net.{name}" for name, part in self.net.named_children() if any(True for _ in part.parameters())]

    def _figure(self, split: str, given: Any, batch: QABatch) -> dict[str, Tensor]:
        """Updates and logs loss and measures."""
        measures = self.measured(given, batch)
        logged: dict[str, Metric] = {}
        for name, values in {"loss": self.losses(given, batch), **measures}.items():
            metric: Any = self.figures[f"{split}_{name}"]
            metric.update(values)
            logged[f"{split}/{name}"] = metric
        self.log_dict(logged, on_step=False, on_epoch=True, batch_size=len(batch))
        return measures

    def _asked(self, batch: QABatch) -> dict[str, list[Any]]:
        """Returns the columns in which people read the questions again; none in training."""
        if batch.written is None:
            return {}
        texts = {self.input_columns[-1]: [each.question for each in batch.written]}
        premise = {name: [each.passage for each in batch.written] for name in self.input_columns[:-1]}
        return premise | texts

    def _known(self, batch: QABatch) -> Tensor:
        """Returns the mask of the questions whose loss is known."""
        return batch.answers >= 0


@validate_ranges
class Chooser(Answerer):
    """Cross-entropy of the answers of a set.

    An answer that is not in the set, which evaluation may have, counts as wrong and has no loss.

    Args:
        net: The network, whose result are the logits of the answers.
        about: What the questions are about.
        optimization: Optimizer, schedule, frozen layers and rates.
        smoothing: Share of the target probability that is spread evenly over all answers in training.
        vectors, spread: See `Answerer`.
    """

    primary = "val/accuracy"
    headline: ClassVar[tuple[str, ...]] = ("accuracy", "loss")

    def __init__(
        self,
        *,
        net: nn.Module,
        about: About,
        optimization: OptimizerConfig,
        smoothing: Probability,
        vectors: str | None = None,
        spread: float | None = None,
    ) -> None:
        how: dict[str, Any] = {"measures": ("accuracy",), "vectors": vectors, "spread": spread}
        super().__init__(net=net, about=about, optimization=optimization, **how)
        self.smoothing = smoothing

    def losses(self, given: Tensor, batch: QABatch, *, training: bool = False) -> Float[Tensor, " k"]:
        known = self._known(batch)
        smoothing = self.smoothing if training else 0.0
        return F.cross_entropy(given[known], batch.answers[known], reduction="none", label_smoothing=smoothing)

    def measured(self, given: Tensor, batch: QABatch) -> dict[str, Float[Tensor, " b"]]:
        return {"accuracy": (given.argmax(-1) == batch.answers).float()}

    def baselines(self, data: AnswerData) -> Sequence[Baseline]:
        asked, classes = data.content.asked, len(data.content.answer_names)
        given = np.array([bool(answer) for answer in asked.answers])
        unlearned = given & (data.content.answers < 0)  # an answer that no model can give is a wrong one
        return [predict_majority(np.where(unlearned, classes, data.content.answers), asked.splits, classes + 1)]

    def answered(self, given: Tensor, batch: QABatch) -> dict[str, list[Any]]:
        probability, best = given.float().softmax(-1).max(-1)
        return {
            "prediction": [batch.answer_names[number] for number in best.tolist()],
            "probability": probability.tolist(),
        }


@validate_ranges
class VQAClassifier(Chooser):
    """Answers questions about pictures; the loss is cross-entropy.

    Args:
        net: `(words, answers, height, width) -> Module`.
        optimization: Optimizer, schedule, frozen layers and rates.
        words, answers: Sizes of the vocabulary and of the set of answers, which the data provides.
        height, width: Size of the pictures, likewise.
        smoothing: Share of the target probability that is spread evenly over all answers in training.
        explain: The level of the question whose map is scored: "word", "phrase" or "question", or "mean" of all,
            the default.
    """

    def __init__(
        self,
        *,
        net: Callable[..., nn.Module],
        optimization: OptimizerConfig,
        words: PositiveInt,
        answers: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        smoothing: Probability = 0.0,
        explain: MapLevel | None = None,
    ) -> None:
        made = net(words=words, answers=answers, height=height, width=width)
        super().__init__(net=made, about="picture", optimization=optimization, smoothing=smoothing)
        self.level = level_of(made, explain)


@validate_ranges
class NLIClassifier(Chooser):
    """Says whether a hypothesis follows from a premise; the loss is cross-entropy.

    Args:
        net: `(words, answers) -> Module`.
        optimization: Optimizer, schedule, frozen layers and rates.
        words, answers: Sizes of the vocabulary and of the set of labels, which the data provides.
        smoothing: Share of the target probability that is spread evenly over all labels in training.
        vectors: File of word vectors to start training from, or `corpus`: see `Answerer`.
        spread: Root mean square of their entries. Default: that of random vectors, because the dot products of smaller
            ones tell a word less well from those that resemble it. None: as in the file.
    """

    def __init__(
        self,
        *,
        net: Callable[..., nn.Module],
        optimization: OptimizerConfig,
        words: PositiveInt,
        answers: PositiveInt,
        smoothing: Probability = 0.0,
        vectors: str | None = None,
        spread: PositiveFloat | None = 1.0,
    ) -> None:
        made = net(words=words, answers=answers)
        how: dict[str, Any] = {"smoothing": smoothing, "vectors": vectors, "spread": spread}
        super().__init__(net=made, about="premise", optimization=optimization, **how)


@validate_ranges
class ExtractiveQA(Answerer):
    """Cross-entropy of the first and the last token of answers; exact match and F1 of the most probable spans.

    Args:
        net: `(words) -> Module` whose result are the logits of the first and of the last token.
        optimization: Optimizer, schedule, frozen layers and rates.
        words: Size of the vocabulary, which the data provides.
        longest: The most tokens of an answer; null: no limit.
    """

    primary = "val/f1"
    headline: ClassVar[tuple[str, ...]] = ("f1", "exact_match", "loss")

    def __init__(
        self,
        *,
        net: Callable[..., nn.Module],
        optimization: OptimizerConfig,
        words: PositiveInt,
        longest: PositiveInt | None = None,
    ) -> None:
        measures = ("exact_match", "f1")
        super().__init__(net=net(words=words), about="passage", optimization=optimization, measures=measures)
        self.longest = longest

    def losses(self, given: tuple[Tensor, Tensor], batch: QABatch, *, training: bool = False) -> Float[Tensor, " k"]:
        known = self._known(batch)
        if batch.spans is None:
            return given[0].new_zeros(0)
        return span_losses(given[0][known], given[1][known], batch.spans[known])

    def measured(self, given: tuple[Tensor, Tensor], batch: QABatch) -> dict[str, Float[Tensor, " b"]]:
        assert batch.written is not None
        pairs = [(said, each.answer) for said, each in zip(self._texts(given, batch)[0], batch.written, strict=True)]
        exact = [float(normalize_answer(said) == normalize_answer(known)) for said, known in pairs]
        shared = [word_f1(said, known) for said, known in pairs]
        return {"exact_match": torch.tensor(exact), "f1": torch.tensor(shared)}

    def baselines(self, data: AnswerData) -> Sequence[Baseline]:
        asked = data.content.asked

        def measure() -> dict[str, float]:
            counts = Counter(asked.answers[number] for number in asked.numbers("train"))
            most, found = max(counts, key=lambda answer: (counts[answer], answer)), {}
            for split in HELD_OUT:
                answers = [asked.answers[number] for number in asked.numbers(split) if asked.answers[number]]
                if answers:
                    exact = sum(normalize_answer(answer) == normalize_answer(most) for answer in answers)
                    found[f"{split}/exact_match"] = exact / len(answers)
                    found[f"{split}/f1"] = sum(word_f1(most, answer) for answer in answers) / len(answers)
            return found

        return [Baseline("the most frequent answer", measure, is_cheap=True)]

    def answered(self, given: tuple[Tensor, Tensor], batch: QABatch) -> dict[str, list[Any]]:
        texts, probabilities = self._texts(given, batch)
        return {"prediction": texts, "probability": probabilities}

    def _texts(self, given: tuple[Tensor, Tensor], batch: QABatch) -> tuple[list[str], list[float]]:
        assert batch.written is not None
        spans, probabilities = best_spans(*given, longest=self.longest)
        texts = [each.between(*span) for each, span in zip(batch.written, spans.tolist(), strict=True)]
        return texts, probabilities.tolist()

    def _known(self, batch: QABatch) -> Tensor:
        if batch.spans is None:
            return torch.zeros(len(batch), dtype=torch.bool)
        return (batch.spans >= 0).all(1)


def _of_first(given: Any, places: int | None) -> Tensor:
    """Returns what a net gives for the first question: logits of answers, or of the first and last of some places."""
    return given[:1] if isinstance(given, Tensor) else torch.cat([each[:1, :places] for each in given])
