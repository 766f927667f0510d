"""Classification of documents with one label, several labels or a rating; attention shows the words that count."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.classification import (
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MultilabelF1Score,
)

from zoo import distributed
from zoo.attention import AttentionMap
from zoo.attention.factories import make_sized
from zoo.errors import ConfigError, did_you_mean
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Invariance, Task
from zoo.tasks.baselines import Baseline
from zoo.tasks.calibration import CalibrationError
from zoo.tasks.command_options import CommandOption
from zoo.tasks.documents.batch import DocumentBatch
from zoo.tasks.documents.label_set import LabelSet
from zoo.tasks.documents.maps.scored_map import (
    distance,
    has_label,
    is_right,
    label_names,
    points,
    predict_columns,
    scored_map,
)
from zoo.tasks.documents.models.bigrams import WordPairs
from zoo.tasks.documents.predictions import answers
from zoo.tasks.documents.small_data import AUTO, choose_vectors
from zoo.tasks.documents.tfidf import compare_documents
from zoo.tasks.documents.word_importance import forward_with_weights
from zoo.tasks.initial_vectors import initialise_vectors
from zoo.types import NonNegativeInt, PositiveFloat, PositiveInt, Probability, validate_ranges

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.documents.datamodule import DocumentData
    from zoo.tasks.documents.explanation import DocumentExplainer


@validate_ranges
class DocumentClassifier(Task):
    """Classifies documents. The loss is cross-entropy, or binary cross-entropy per label if documents can have several.

    If documents can have several labels, accuracy is the share of documents whose labels are all predicted correctly.
    Ratings are classes too; their mean absolute error is computed from the median of the predicted distribution,
    because the median minimises the expected absolute error.

    Args:
        net: `(words, classes) -> Module`. The module maps a batch of documents to one logit per label.
        optimization: Optimizer, schedule, frozen layers and learning rates.
        words, classes: Sizes of the vocabulary and of the label set, which the data provides.
        vectors: Text file of word vectors to start training from, or `corpus` to learn them from co-occurrences in the
            training texts. Words without a vector are initialised at random. `auto` is `choose_vectors`, and random
            ones where training starts from a checkpoint. Default: all words are initialised at random.
        smoothing: Share of the target probability that is spread evenly over all labels in training. It has no effect
            if documents can have several labels.
        class_weights: Weight of each label in the training loss: `balance` weights labels by the inverse of their
            frequency; a mapping gives weights by name, and labels that are not in it have weight 1. If documents can
            have several labels, only the loss of documents that have the label is weighted. Default: equal weights.
        own_texts: From the data: 1 if the texts are the user's own. A net may ask for it.
    """

    primary = "val/accuracy"
    primary_mode = "max"
    headline = ("accuracy", "f1_macro", "mae", "calibration_error", "loss")

    def __init__(
        self,
        *,
        net: Callable[..., nn.Module],
        optimization: OptimizerConfig,
        words: PositiveInt,
        classes: PositiveInt,
        vectors: str | None = None,
        smoothing: Probability = 0.0,
        class_weights: Literal["balanced"] | Mapping[str, PositiveFloat] | None = None,
        own_texts: NonNegativeInt = 0,
    ) -> None:
        super().__init__(optimization=optimization)
        self.net = make_sized(net, {"words": words, "classes": classes, "own_texts": own_texts})
        self.vectors = vectors
        self.smoothing = smoothing
        self.class_weights = class_weights
        self.classes = classes
        kinds: dict[str, Any] = {"single": MulticlassF1Score, "multi": MultilabelF1Score}
        self.f1 = nn.ModuleDict(
            {
                f"{kind}_{average}": made(max(2, classes), average=average)
                for kind, made in kinds.items()
                for average in ("macro", "micro")
            }
        )
        self.confusion = MulticlassConfusionMatrix(max(2, classes))
        self.calibration = CalibrationError()
        self.val_loss, self.val_accuracy, self.val_mae = (distributed.GlobalMean() for _ in range(3))
        self.test_loss, self.test_accuracy, self.test_mae = (distributed.GlobalMean() for _ in range(3))
        self.sentence_pointing, self.word_pointing = (distributed.GlobalMean() for _ in range(2))
        self.shortcut_weight, self.without_shortcut = (distributed.GlobalMean() for _ in range(2))
        self._confusion: list[dict[str, Any]] = []
        self._labels: LabelSet | None = None

    @classmethod
    def mode_of(cls, metric: str) -> Literal["min", "max"] | None:
        return "min" if metric.endswith("mae") else super().mode_of(metric)

    def forward(self, batch: DocumentBatch[Any]) -> Float[Tensor, "b classes"]:
        logits: Tensor = self.net(batch)
        return logits

    def begin(self, data: DocumentData) -> None:
        """Gives the net the initial word vectors, and the names of words if it has vectors of word pairs."""
        words = data.content.vocabulary.tokens
        if isinstance(pairs := getattr(self.net, "pairs", None), WordPairs):
            pairs.name(words)
        table: Any = self.net.vectors
        source, chosen = self.vectors, data.choices
        if source == AUTO:
            source = choose_vectors(data.chooses_for_own, *table.table.weight.shape)
            chosen += [] if source is None else [f"model.vectors={source}"]
        if data.chooses_for_own:
            chosen += [f"model.net.{each}" for each in getattr(self.net, "choices", ())]
        if chosen and distributed.is_rank_zero():
            print(f"zoo: chosen for texts of your own: {' '.join(chosen)}", file=sys.stderr)
        if source is None:
            return

        def texts() -> Iterator[Int[np.ndarray, " n"]]:
            for text in data.examples("train", training=True).entries:
                yield np.fromiter(chain.from_iterable(text.sentences), dtype=np.int64)

        initialise_vectors(table, source, words, texts, data.source.reading.cache)

    def baselines(self, data: DocumentData) -> Sequence[Baseline]:
        return compare_documents(data)

    def training_step(self, batch: DocumentBatch[None], batch_idx: int) -> Tensor:
        losses = self._losses(self(batch), batch, training=True)
        loss = distributed.mean_loss(losses.sum(), len(batch))
        self.log_training({"train/loss": loss}, len(batch))
        return loss

    def validation_step(self, batch: DocumentBatch[Any], batch_idx: int) -> None:
        logits = self(batch)
        self.val_loss.update(self._losses(logits, batch))
        self.val_accuracy.update(is_right(logits, batch))
        metrics: dict[str, Metric] = {"val/loss": self.val_loss, "val/accuracy": self.val_accuracy}
        if batch.known_label_set.targets == "ordinal":
            self.val_mae.update(distance(logits, batch))
            metrics["val/mae"] = self.val_mae
        self.log_evaluation(metrics, len(batch))

    def test_step(self, batch: DocumentBatch[Any], batch_idx: int) -> None:
        """Updates all metrics. They are logged as `test/...` for every split; `run` renames them after the split."""
        logits, weights = forward_with_weights(self.net, batch)
        self._labels = labels = batch.known_label_set
        targets = labels.targets
        kind = "multi" if targets == "multi" else "single"
        self.test_loss.update(self._losses(logits, batch))
        self.test_accuracy.update(is_right(logits, batch))
        metrics: dict[str, Metric] = {"test/loss": self.test_loss, "test/accuracy": self.test_accuracy}
        for average in ("macro", "micro"):
            found: Any = self.f1[f"{kind}_{average}"]
            found.update(logits.sigmoid() if kind == "multi" else logits, batch.labels.long())
            metrics[f"test/f1_{average}"] = found
        if kind == "multi":  # each label is a binary decision
            each = logits.flatten()
            self.calibration.update(torch.stack([torch.zeros_like(each), each], 1), batch.labels.flatten().long())
        else:
            self.calibration.update(logits, batch.labels)
            self.confusion.update(logits, batch.labels)
        metrics["test/calibration_error"] = self.calibration
        if targets == "ordinal":
            self.test_mae.update(distance(logits, batch))
            metrics["test/mae"] = self.test_mae
        metrics |= self._truth(batch, weights) | self._shortcut(batch, weights)
        self.log_evaluation(metrics, len(batch))

    def on_test_epoch_start(self) -> None:
        self.confusion.reset()

    def on_test_epoch_end(self) -> None:
        self._confusion = []
        if self._labels is None or self._labels.targets == "multi":
            return
        # computed here, because `compute` synchronises and all processes reach this hook
        names, counts = self._labels.names, self.confusion.compute().tolist()
        self._confusion = [
            {"label / prediction": name, **dict(zip(names, row, strict=True))}
            for name, row in zip(names, counts, strict=True)
        ]

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the confusion matrix of the last evaluated split: a row per label, a column per prediction."""
        return {"confusion": self._confusion} if self._confusion else {}

    def explain(self, batch: DocumentBatch[Any]) -> AttentionMap:
        """Returns the weight of each word in its document, as a map; in a hierarchy, word weight x sentence weight."""
        _, weights = forward_with_weights(self.net, batch)
        if weights is None:
            raise ConfigError("this model has no map of its words: its attention has no weights")
        return scored_map(weights, batch)

    def maps(self, data: DocumentData, options: MapOptions) -> DocumentExplainer:
        from zoo.tasks.documents.explanation import DocumentExplainer

        return DocumentExplainer(self, data, options)

    predict_options = (CommandOption(name="explain", kind=None, help="the sentences and words that weighed most"),)

    def predictor(self, *, explain: bool = False) -> Callable[[Any], dict[str, list[Any]]]:
        """Returns the function that computes the columns of `zoo predict`.

        Args:
            explain: If True, the columns `sentences` and `words` name the heaviest ones.
        """
        return lambda batch: answers(self, batch, explain=explain)

    def predict_step(self, batch: DocumentBatch[Any], batch_idx: int = 0) -> dict[str, list[Any]]:
        """Returns columns with an entry per document; `loss` is None if the label is unknown."""
        return self.columns(batch, self(batch))

    def columns(self, batch: DocumentBatch[Any], logits: Float[Tensor, "b classes"]) -> dict[str, list[Any]]:
        """Returns the columns of `predict_step` from the logits of a pass."""
        known = has_label(batch)
        losses = self._losses(logits, batch, known=known).tolist()
        return {
            "id": list(batch.ids),
            "split": list(batch.splits),
            "label": label_names(batch, known),
            **predict_columns(logits, batch),
            "loss": [value if is_known else None for value, is_known in zip(losses, known.tolist(), strict=True)],
        }

    def invariants(self, batch: DocumentBatch[Any]) -> Sequence[Invariance]:
        """States that the output for a document does not depend on the other documents of the batch."""
        if len(batch) < 2:
            return ()
        return (Invariance("other documents of the batch", batch.select([0]), lambda out: out[:1]),)

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Matches the vectors of words by token, and the rows of the last layer by label."""
        return {
            "tokens": {
                name: 0 for name in ("net.vectors.table.weight", "net.pairs.codes") if name in self.state_dict()
            },
            "labels": {"net.head.weight": 0, "net.head.bias": 0},
        }

    def layer_groups(self) -> list[str]:
        parts = [name for name, _ in self.net.named_children() if name not in ("dropout", "head")]
        return [f"net.{name}" for name in (*parts, "head")]

    def _losses(
        self, logits: Tensor, batch: DocumentBatch[Any], *, training: bool = False, known: Tensor | None = None
    ) -> Float[Tensor, " b"]:
        """Returns the loss of each document. Class weights and label smoothing apply in training only."""
        labels = batch.known_label_set
        weights = self._weights(labels).to(logits) if training and self.class_weights is not None else None
        if labels.targets == "multi":
            each = F.binary_cross_entropy_with_logits(
                logits, batch.labels.to(logits.dtype), pos_weight=weights, reduction="none"
            )
            return each.mean(1)
        smoothing = self.smoothing if training else 0.0
        targets = batch.labels if known is None else batch.labels.clamp(min=0)
        return F.cross_entropy(logits, targets, weight=weights, reduction="none", label_smoothing=smoothing)

    def _weights(self, labels: LabelSet) -> Float[Tensor, " classes"]:
        if self.class_weights == "balanced":
            return labels.balance()
        assert isinstance(self.class_weights, Mapping)
        for name in self.class_weights:
            if str(name) not in labels.names:
                raise ConfigError(
                    f"model.class_weights: there is no label {name!r}. {did_you_mean(str(name), labels.names)}"
                )
        given = {str(name): value for name, value in self.class_weights.items()}
        return torch.tensor([float(given.get(name, 1.0)) for name in labels.names])

    def _truth(self, batch: DocumentBatch[Any], weights: Tensor | None) -> dict[str, Metric]:
        if batch.gold is None or weights is None:
            return {}
        sentences, words = points(weights, batch, batch.gold)
        self.sentence_pointing.update(sentences)
        self.word_pointing.update(words)
        return {"truth/sentence_pointing": self.sentence_pointing, "truth/word_pointing": self.word_pointing}

    def _shortcut(self, batch: DocumentBatch[Any], weights: Tensor | None) -> dict[str, Metric]:
        """Measures the weight on planted words, and the accuracy after the unknown word has replaced them."""
        if batch.planted is None:
            return {}
        metrics: dict[str, Metric] = {"test/accuracy_without_shortcut": self.without_shortcut}
        self.without_shortcut.update(is_right(self(batch.mask_words(batch.planted)), batch))
        if weights is not None:
            self.shortcut_weight.update(weights[batch.planted])
            metrics["test/shortcut_weight"] = self.shortcut_weight
        return metrics
