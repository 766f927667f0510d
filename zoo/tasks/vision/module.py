"""Classification of pictures: loss with mixed and smoothed labels, metrics, where the model looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix, MulticlassF1Score
from torchvision.transforms import v2

from zoo.attention import AttentionMap, DenseSupport
from zoo.attention.ranges import Count, NotNegative, Rate
from zoo.errors import ConfigError
from zoo.maps.score import pointing
from zoo.maps.source import MapOptions
from zoo.tasks.contract import Invariance, Published, Task
from zoo.tasks.vision.batch import Images
from zoo.tasks.vision.calibration import CalibrationError
from zoo.tasks.vision.costs import gate_costs
from zoo.tasks.vision.maps.map_source import PictureMaps
from zoo.tasks.vision.maps.scored import How, Look, gold_cells, heat, look, refusal, usual
from zoo.tasks.vision.nets.picture_net import PictureNet, TokenNet
from zoo.tasks.vision.nets.pretrained import published
from zoo.training import ranks
from zoo.training.optimisation import Optimisation

if TYPE_CHECKING:
    from zoo.tasks.vision.data.image_data import ImageData


class ImageClassifier(Task):
    """Cross-entropy over classes; top-1 and top-5 accuracy, macro F1, expected calibration error.

    Args:
        net: `(channels, height, width, classes) -> Module`, from pictures to one logit a class.
        optimisation: Optimiser, schedule, frozen layers and rates.
        channels, height, width, classes: From the data.
        size: The name of one of the net's sizes, which is given it.
        backbone: The name of one of the net's backbones, which is given it.
        smoothing: Of training labels: this share is spread evenly over all classes.
        mixup: Alpha of mixup (Zhang et al. 2018); 0 for none.
        cutmix: Alpha of CutMix (Yun et al. 2019); 0 for none. With both, each batch takes one of them.
        channels_last: The memory format of a convolutional net; the outputs are the same.
        explain: What the map that is scored is made of, see `maps.scored`; None: the one of `usual`, and no map
            where the net can give none, as with attention that has no weights.
    """

    primary = "val/accuracy"
    primary_mode = "max"
    headline = ("accuracy", "top5_accuracy", "calibration_error", "loss")

    def __init__(
        self,
        *,
        net: Callable[..., PictureNet],
        optimisation: Optimisation,
        channels: Count,
        height: Count,
        width: Count,
        classes: Count,
        size: str | None = None,
        backbone: str | None = None,
        smoothing: Rate = 0.0,
        mixup: NotNegative = 0.0,
        cutmix: NotNegative = 0.0,
        channels_last: bool = False,
        explain: How | None = None,
    ) -> None:
        super().__init__(optimisation=optimisation)
        if not 0 <= smoothing < 1:
            raise ConfigError(f"model.smoothing={smoothing}: write a number from 0 up to, but not, 1")
        named = {name: value for name, value in {"size": size, "backbone": backbone}.items() if value is not None}
        self.net = net(channels=channels, height=height, width=width, classes=classes, **named)
        if not isinstance(self.net, PictureNet):
            raise ConfigError(
                f"model.net: {type(self.net).__name__} is no PictureNet (zoo.tasks.vision.nets.picture_net)"
            )
        if channels_last:
            self.net.to(memory_format=torch.channels_last)
        why_not = None if explain is None else refusal(self.net, explain)
        if why_not:
            raise ConfigError(f"model.explain={explain}: {why_not}")
        self._how = usual(self.net) if explain is None else explain
        self.smoothing = smoothing
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self.mix = _mixing(mixup, cutmix, classes)
        metrics: dict[str, Any] = {
            "test/accuracy": MulticlassAccuracy(classes, average="micro"),
            "test/f1_macro": MulticlassF1Score(classes, average="macro"),
        }
        if classes > 5:
            metrics["test/top5_accuracy"] = MulticlassAccuracy(classes, average="micro", top_k=5)
        self.test_metrics = MetricCollection(metrics)
        self.test_calibration = CalibrationError()
        self.test_confusion = MulticlassConfusionMatrix(classes)
        self.test_loss, self.val_loss, self.val_accuracy, self.pointing = (ranks.MeanOfTargets() for _ in range(4))
        self._label_names: tuple[str, ...] = ()
        self._confusion: list[dict[str, Any]] = []

    def forward(self, batch: Images) -> Float[Tensor, "b classes"]:
        return self._logits(batch.pixels)

    def training_step(self, batch: Images, batch_idx: int) -> Tensor:
        pixels, labels = batch.pixels, batch.labels
        if self.mix is not None and len(labels) > 1:  # a picture is mixed with another
            pixels, labels = self.mix(pixels, labels)
        total = F.cross_entropy(self._logits(pixels), labels, reduction="sum", label_smoothing=self.smoothing)
        loss = ranks.mean_loss(total, len(labels))
        self.log("train/loss", loss, on_step=True, on_epoch=False, batch_size=len(labels), sync_dist=ranks.world() > 1)
        return loss

    def validation_step(self, batch: Images, batch_idx: int) -> None:
        logits = self(batch)
        self.val_loss.update(F.cross_entropy(logits, batch.labels, reduction="none"))
        self.val_accuracy.update((logits.argmax(-1) == batch.labels).float())
        metrics = {"val/loss": self.val_loss, "val/accuracy": self.val_accuracy}
        self.log_dict(metrics, on_step=False, on_epoch=True, batch_size=len(batch.labels))

    def test_step(self, batch: Images, batch_idx: int) -> None:
        """Every metric of a batch, whichever split it is of; `run` names them after it."""
        logits = self(batch)
        self._label_names = batch.label_names
        self.test_metrics.update(logits, batch.labels)
        self.test_calibration.update(logits, batch.labels)
        self.test_confusion.update(logits, batch.labels)
        self.test_loss.update(F.cross_entropy(logits, batch.labels, reduction="none"))
        metrics = {"test/calibration_error": self.test_calibration, "test/loss": self.test_loss}
        size = len(batch.labels)
        self.log_dict(self.test_metrics, on_step=False, on_epoch=True, batch_size=size)
        self.log_dict(metrics, on_step=False, on_epoch=True, batch_size=size)
        if batch.gold is not None and self._how is not None:
            found = self.heat(batch)
            self.pointing.update(pointing(found.flatten(1), gold_cells(batch.gold, (found.shape[1], found.shape[2]))))
            self.log("truth/pointing_accuracy", self.pointing, on_step=False, on_epoch=True, batch_size=size)

    def on_test_epoch_start(self) -> None:
        self.test_confusion.reset()

    def on_test_epoch_end(self) -> None:
        counts = self.test_confusion.compute().tolist()  # here, where all processes are
        names = self._label_names
        self._confusion = [
            {"label / prediction": name, **dict(zip(names, row, strict=True))}
            for name, row in zip(names, counts, strict=bool(names))
        ]

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The confusion matrix of the last split that was evaluated: a row a label, a column a prediction."""
        return {"confusion": self._confusion} if self._confusion else {}

    @property
    def explain_by(self) -> How:
        """The way in which the scored map is made, see `maps.scored`."""
        if self._how is None:
            raise ConfigError("this model has no map of where it looks: its attention has no weights, and no class map")
        return self._how

    def look(self, pixels: Float[Tensor, "b c h w"]) -> Look:
        """Logits and the scored map of one pass."""
        return look(self.net, self._as_taken(pixels), self.explain_by)

    def heat(self, batch: Images) -> Float[Tensor, "b r c"]:
        """Where the model looks, on its own grid of cells."""
        return heat(self.net, self._as_taken(batch.pixels), self.explain_by)

    def explain(self, batch: Images) -> AttentionMap:
        """The scored map: one query, the picture; its keys are the cells of the grid, in reading order."""
        weights = self.heat(batch).flatten(1)[:, None, None]
        return AttentionMap(
            site=self.explain_by,
            weights=weights,
            axes=("batch", "head", "query", "key"),
            support=DenseSupport(),
            heads=(0,),
        )

    def maps(self, data: ImageData, options: MapOptions) -> PictureMaps:
        return PictureMaps(self, data, options)

    def predict_step(self, batch: Images, batch_idx: int = 0) -> dict[str, list[Any]]:
        """One column a key, one entry a picture; `loss` is None where the label is not known."""
        return self.predicted(batch, self(batch))

    def predicted(self, batch: Images, logits: Float[Tensor, "b classes"]) -> dict[str, list[Any]]:
        """The columns of `predict_step`."""
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

    def invariants(self, batch: Images) -> Sequence[Invariance]:
        """A picture's output is its own: the other pictures of the batch do not matter."""
        if len(batch.labels) < 2:
            return ()
        others = torch.cat([batch.pixels[:1], -batch.pixels[1:]])
        return (Invariance("other pictures of the batch", batch.with_pixels(others), lambda out: out[:1]),)

    def costs(self, batch: Images) -> list[str]:
        """Each gate's share of the parameters, of the products and of the time of a pass."""
        costs = gate_costs(self.net, self._as_taken(batch.pixels), repeats=3)
        return [cost.share_of(costs[-1]) for cost in costs[:-1]]

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """The rows of the last layer are matched by the names of the labels."""
        return {"labels": {f"net.head.{name}": 0 for name, _ in self.net.head.named_parameters()}}

    def stages(self) -> list[str]:
        return [f"net.{each}" for each in self.net.stages()]

    def resized(self, name: str, old: Tensor, shape: torch.Size) -> Tensor | None:
        """Positions of another resolution, interpolated."""
        return self.net.resized(name.removeprefix("net."), old, shape)

    def published(self, name: str) -> Published:
        """Weights of torchvision for this net."""
        weights, labels = published(name, self.net)
        return Published({f"net.{key}": value for key, value in weights.items()}, {"labels": list(labels)})

    def gold_attention(self, batch: Images) -> Mapping[str, Tensor]:
        """Of the class token of the last layer; other tokens have no gold."""
        net = self.net
        if batch.gold is None or not isinstance(net, TokenNet) or net.class_site is None or self.mix is not None:
            return {}
        cells = gold_cells(batch.gold, net.grid(batch.pixels.shape[2], batch.pixels.shape[3]))
        tokens = net.extra + cells.shape[1]
        gold = cells.new_zeros(len(cells), tokens, tokens)
        gold[:, 0, net.extra :] = cells
        return {f"net.{net.class_site}": gold}

    def _logits(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        logits: Tensor = self.net(self._as_taken(pixels))
        return logits

    def _as_taken(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return pixels.contiguous(memory_format=self.memory_format)


def _mixing(mixup: float, cutmix: float, classes: int) -> Callable[[Tensor, Int[Tensor, " b"]], Any] | None:
    """torchvision's transforms of a batch: from labels to probabilities of classes."""
    for name, alpha in (("mixup", mixup), ("cutmix", cutmix)):
        if alpha < 0:
            raise ConfigError(f"model.{name}={alpha}: write a number above 0, or 0 for none")
    kinds = ((v2.MixUp, mixup), (v2.CutMix, cutmix))
    with torch.device("cpu"):  # they look at alpha as a tensor, also where the model is made on meta
        chosen: list[Any] = [kind(alpha=alpha, num_classes=classes) for kind, alpha in kinds if alpha]
    if len(chosen) < 2:
        return chosen[0] if chosen else None
    mix: Callable[[Tensor, Tensor], Any] = v2.RandomChoice(chosen)
    return mix
