"""Classification of pictures: loss with mixup, CutMix and label smoothing, metrics, and the scored map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix, MulticlassF1Score
from torchvision.transforms import v2

from zoo import distributed
from zoo.attention import AttentionMap, DenseSupport
from zoo.errors import ConfigError
from zoo.maps.metrics import pointing
from zoo.nn.images.classifier import ImageClassifierNet, TokenNet
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Invariance, Published, Task
from zoo.tasks.baselines import Baseline, predict_majority
from zoo.tasks.calibration import CalibrationError
from zoo.tasks.vision.batch import ImageBatch
from zoo.tasks.vision.costs import gate_costs
from zoo.tasks.vision.maps.heatmaps import Explanation, How, default_map, explanation, gold_cells, heat, refusal
from zoo.tasks.vision.models.pretrained import load_published
from zoo.types import NonNegativeFloat, PositiveInt, Probability, validate_ranges

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.vision.datamodule import ImageData
    from zoo.tasks.vision.explanation import ImageExplainer


@validate_ranges
class ImageClassifier(Task):
    """Cross-entropy over classes; top-1 and top-5 accuracy, macro F1, expected calibration error.

    Args:
        net: `(channels, height, width, classes) -> ImageClassifierNet`.
        optimization: Optimizer, schedule, frozen layers and learning rates.
        channels, height, width, classes: Shape of the pictures, and number of classes.
        size: Name of one of the net's sizes. Default: the net's own default.
        backbone: Name of one of the net's backbones, for nets that have them.
        smoothing: Label smoothing: this share of a training label is spread evenly over all classes.
        mixup: Alpha of mixup (Zhang et al. 2018); 0 for none.
        cutmix: Alpha of CutMix (Yun et al. 2019); 0 for none. With both, each batch uses one of them at random.
        channels_last: If True, the net uses this memory format, which is faster for convolutions.
        explain: Method of the scored map, see `maps.scored`. Default: that of `default_map`. If the net has none, such
            as with attention that has no weights, the model has no map.
    """

    primary = "val/accuracy"
    primary_mode = "max"
    headline = ("accuracy", "top5_accuracy", "calibration_error", "loss")

    def __init__(
        self,
        *,
        net: Callable[..., ImageClassifierNet],
        optimization: OptimizerConfig,
        channels: PositiveInt,
        height: PositiveInt,
        width: PositiveInt,
        classes: PositiveInt,
        size: str | None = None,
        backbone: str | None = None,
        smoothing: Probability = 0.0,
        mixup: NonNegativeFloat = 0.0,
        cutmix: NonNegativeFloat = 0.0,
        channels_last: bool = False,
        explain: How | None = None,
    ) -> None:
        super().__init__(optimization=optimization)
        named = {name: value for name, value in {"size": size, "backbone": backbone}.items() if value is not None}
        self.net = net(channels=channels, height=height, width=width, classes=classes, **named)
        if not isinstance(self.net, ImageClassifierNet):
            raise ConfigError(
                f"model.net: {type(self.net).__name__} is no ImageClassifierNet (zoo.nn.images.classifier)"
            )
        if channels_last:
            self.net.to(memory_format=torch.channels_last)
        why_not = None if explain is None else refusal(self.net, explain)
        if why_not:
            raise ConfigError(f"model.explain={explain}: {why_not}")
        self._how = default_map(self.net) if explain is None else explain
        self.smoothing = smoothing
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self.mix = _make_mixing(mixup, cutmix, classes)
        metrics: dict[str, Any] = {
            "test/accuracy": MulticlassAccuracy(classes, average="micro"),
            "test/f1_macro": MulticlassF1Score(classes, average="macro"),
        }
        if classes > 5:
            metrics["test/top5_accuracy"] = MulticlassAccuracy(classes, average="micro", top_k=5)
        self.test_metrics = MetricCollection(metrics)
        self.test_calibration = CalibrationError()
        self.test_confusion = MulticlassConfusionMatrix(classes)
        self.test_loss, self.val_loss, self.val_accuracy, self.pointing = (distributed.GlobalMean() for _ in range(4))
        self._label_names: tuple[str, ...] = ()
        self._confusion: list[dict[str, Any]] = []

    def forward(self, batch: ImageBatch) -> Float[Tensor, "b classes"]:
        return self._logits(batch.pixels)

    def training_step(self, batch: ImageBatch, batch_idx: int) -> Tensor:
        pixels, labels = batch.pixels, batch.labels
        if self.mix is not None and len(labels) > 1:  # mixing needs two pictures
            pixels, labels = self.mix(pixels, labels)
        total = F.cross_entropy(self._logits(pixels), labels, reduction="sum", label_smoothing=self.smoothing)
        loss = distributed.mean_loss(total, len(labels))
        self.log_training({"train/loss": loss}, len(labels))
        return loss

    def validation_step(self, batch: ImageBatch, batch_idx: int) -> None:
        logits = self(batch)
        self.val_loss.update(F.cross_entropy(logits, batch.labels, reduction="none"))
        self.val_accuracy.update((logits.argmax(-1) == batch.labels).float())
        metrics = {"val/loss": self.val_loss, "val/accuracy": self.val_accuracy}
        self.log_evaluation(metrics, len(batch.labels))

    def test_step(self, batch: ImageBatch, batch_idx: int) -> None:
        """Logs all metrics under `test/`; an evaluation of another split renames them after it."""
        logits = self(batch)
        self._label_names = batch.label_names
        self.test_metrics.update(logits, batch.labels)
        self.test_calibration.update(logits, batch.labels)
        self.test_confusion.update(logits, batch.labels)
        self.test_loss.update(F.cross_entropy(logits, batch.labels, reduction="none"))
        metrics = {"test/calibration_error": self.test_calibration, "test/loss": self.test_loss}
        size = len(batch.labels)
        self.log_evaluation(self.test_metrics, size)
        self.log_evaluation(metrics, size)
        if batch.gold is not None and self._how is not None:
            found = self.heat(batch)
            self.pointing.update(pointing(found.flatten(1), gold_cells(batch.gold, (found.shape[1], found.shape[2]))))
            self.log_evaluation({"truth/pointing_accuracy": self.pointing}, size)

    def on_test_epoch_start(self) -> None:
        self.test_confusion.reset()

    def on_test_epoch_end(self) -> None:
        counts = self.test_confusion.compute().tolist()  # all processes take part here
        names = self._label_names
        self._confusion = [
            {"label / prediction": name, **dict(zip(names, row, strict=True))}
            for name, row in zip(names, counts, strict=bool(names))
        ]

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the confusion matrix of the last evaluated split, with labels as rows and predictions as columns."""
        return {"confusion": self._confusion} if self._confusion else {}

    @property
    def explain_by(self) -> How:
        """The method of the scored map, see `maps.scored`."""
        if self._how is None:
            raise ConfigError(
                "this model has no heat map: its attention has no weights, and its head allows no class activation map"
            )
        return self._how

    def explanation(self, pixels: Float[Tensor, "b c h w"]) -> Explanation:
        """Computes logits and the scored map in one pass."""
        return explanation(self.net, self._set_memory_format(pixels), self.explain_by)

    def heat(self, batch: ImageBatch) -> Float[Tensor, "b r c"]:
        """Computes the scored map on the net's grid of cells."""
        return heat(self.net, self._set_memory_format(batch.pixels), self.explain_by)

    def explain(self, batch: ImageBatch) -> AttentionMap:
        """Returns the scored map, with the picture as its one query and the cells of the grid, row by row, as keys."""
        weights = self.heat(batch).flatten(1)[:, None, None]
        return AttentionMap(
            site=self.explain_by,
            weights=weights,
            axes=("batch", "head", "query", "key"),
            support=DenseSupport(),
            heads=(0,),
        )

    def maps(self, data: ImageData, options: MapOptions) -> ImageExplainer:
        from zoo.tasks.vision.explanation import ImageExplainer

        return ImageExplainer(self, data, options)

    def predict_step(self, batch: ImageBatch, batch_idx: int = 0) -> dict[str, list[Any]]:
        """Returns predictions as columns, with one entry for each picture; `loss` is None if the label is unknown."""
        return self.predict_columns(batch, self(batch))

    def predict_columns(self, batch: ImageBatch, logits: Float[Tensor, "b classes"]) -> dict[str, list[Any]]:
        """Returns the columns of `predict_step` for logits that were computed before."""
        probabilities = logits.float().softmax(-1)
        ranked = probabilities.topk(min(5, probabilities.shape[1]))
        names, labels = batch.label_names, batch.labels.tolist()
        loss = F.nll_loss(probabilities.clamp(min=1e-12).log(), batch.labels.clamp(min=0), reduction="none")
        top = [
            "; ".join(f"{names[label]} {p:.4f}" for label, p in zip(row, values, strict=True))
            for row, values in zip(ranked.indices.tolist(), ranked.values.tolist(), strict=True)
        ]
        return {
            "id": list(batch.ids),
            "split": list(batch.splits),
            "label": [names[y] if y >= 0 else "" for y in labels],
            "prediction": [names[y] for y in ranked.indices[:, 0].tolist()],
            "probability": ranked.values[:, 0].tolist(),
            "top5": top,
            "loss": [value if y >= 0 else None for value, y in zip(loss.tolist(), labels, strict=True)],
        }

    def baselines(self, data: ImageData) -> Sequence[Baseline]:
        pictures = data.pictures
        return [predict_majority(np.asarray(pictures.labels), data.split_numbers(), len(pictures.label_names))]

    def invariants(self, batch: ImageBatch) -> Sequence[Invariance]:
        """Returns a change of the other pictures in the batch, which must not change a picture's output."""
        if len(batch.labels) < 2:
            return ()
        others = torch.cat([batch.pixels[:1], -batch.pixels[1:]])
        return (Invariance("other pictures of the batch", batch.replace_pixels(others), lambda out: out[:1]),)

    def costs(self, batch: ImageBatch) -> list[str]:
        """Returns each gate's shares of the net's parameters, MACs and time."""
        costs = gate_costs(self.net, self._set_memory_format(batch.pixels), repeats=3)
        return [cost.share_of(costs[-1]) for cost in costs[:-1]]

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Returns the parameters of the last layer, whose rows are matched by label names."""
        return {"labels": {f"net.head.{name}": 0 for name, _ in self.net.head.named_parameters()}}

    def layer_groups(self) -> list[str]:
        return [f"net.{each}" for each in self.net.layer_groups()]

    def resize_parameter(self, name: str, old: Tensor, shape: torch.Size) -> Tensor | None:
        """Interpolates positions that were learned at another resolution."""
        return self.net.resize_parameter(name.removeprefix("net."), old, shape)

    def load_published(self, name: str) -> Published:
        """Returns torchvision's published weights for this net."""
        weights, labels = load_published(name, self.net)
        return Published({f"net.{key}": value for key, value in weights.items()}, {"labels": list(labels)})

    def gold_attention(self, batch: ImageBatch) -> Mapping[str, Tensor]:
        """Returns the gold attention of the class token in the last layer; other tokens have none."""
        net = self.net
        if batch.gold is None or not isinstance(net, TokenNet) or net.class_site is None or self.mix is not None:
            return {}
        cells = gold_cells(batch.gold, net.grid(batch.pixels.shape[2], batch.pixels.shape[3]))
        tokens = net.extra + cells.shape[1]
        gold = cells.new_zeros(len(cells), tokens, tokens)
        gold[:, 0, net.extra :] = cells
        return {f"net.{net.class_site}": gold}

    def _logits(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        logits: Tensor = self.net(self._set_memory_format(pixels))
        return logits

    def _set_memory_format(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return pixels.contiguous(memory_format=self.memory_format)


def _make_mixing(mixup: float, cutmix: float, classes: int) -> Callable[[Tensor, Int[Tensor, " b"]], Any] | None:
    """Returns torchvision's transform of (pixels, labels) to mixed pixels and class probabilities, or None."""
    kinds = ((v2.MixUp, mixup), (v2.CutMix, cutmix))
    with torch.device("cpu"):  # the transforms read alpha from a tensor, which has no value on meta
        chosen: list[Any] = [kind(alpha=alpha, num_classes=classes) for kind, alpha in kinds if alpha]
    if len(chosen) < 2:
        return chosen[0] if chosen else None
    mix: Callable[[Tensor, Tensor], Any] = v2.RandomChoice(chosen)
    return mix
