"""Node classification: predicts the class of each node of a graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

from zoo import distributed
from zoo.attention import AttentionMap, record, sites
from zoo.attention.recording.recorder import Recording
from zoo.maps.metrics import edge_auc
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Invariance, Task
from zoo.tasks.baselines import Baseline, fit_logistic_regression, predict_majority, to_array
from zoo.tasks.graph.batch import Data
from zoo.tasks.graph.graph import SPLITS
from zoo.tasks.graph.models import GraphAttentionNet
from zoo.tasks.graph.receptive_field import Field, receptive_field
from zoo.tasks.graph.sparse_features import negate_rows
from zoo.types import AnyInt, PositiveInt, validate_ranges

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.graph.datamodule import GraphData
    from zoo.tasks.graph.explanation import GraphExplainer


@validate_ranges
class NodeClassifier(Task):
    """Cross-entropy over the labelled nodes of a split; accuracy and macro F1.

    Args:
        net: `(features, classes) -> GraphAttentionNet`.
        optimization: Optimizer, schedule, frozen layers and learning rates.
        features, classes: Numbers of features and classes of the data.
        explain_layer: The layer whose map, averaged over its heads, is scored against the gold attention.
    """

    primary = "val/accuracy"
    primary_mode = "max"
    headline = ("accuracy", "f1_macro", "loss")

    def __init__(
        self,
        *,
        net: Callable[..., GraphAttentionNet],
        optimization: OptimizerConfig,
        features: PositiveInt,
        classes: PositiveInt,
        explain_layer: AnyInt = 0,
    ) -> None:
        super().__init__(optimization=optimization)
        self.net = net(features=features, classes=classes)
        self.test_metrics = MetricCollection(
            {
                "test/accuracy": MulticlassAccuracy(classes, average="micro"),
                "test/f1_macro": MulticlassF1Score(classes, average="macro"),
            }
        )
        self.test_loss, self.val_loss, self.val_accuracy, self.edge_auc = (distributed.GlobalMean() for _ in range(4))
        self.explain_layer = explain_layer
        if not -len(sites(self.net)) <= explain_layer < len(sites(self.net)):
            raise ValueError(f"explain_layer={explain_layer}, but the net has {len(sites(self.net))} layers")

    def forward(self, batch: Data) -> Float[Tensor, "n classes"]:
        logits: Tensor = self.net(batch.x, batch.support)
        return logits

    def training_step(self, batch: Data, batch_idx: int) -> Tensor:
        """Computes the loss of this process's share of the nodes."""
        nodes = distributed.shard(batch.nodes)
        logits = self._logits(batch, nodes)
        total = F.cross_entropy(logits, batch.y.index_select(0, nodes), reduction="sum")
        loss = distributed.mean_loss(total, len(nodes))
        self.log_training({"train/loss": loss}, len(nodes))
        return loss

    def validation_step(self, batch: Data, batch_idx: int) -> None:
        losses, logits, labels = self._score(batch)
        self.val_loss.update(losses)
        self.val_accuracy.update((logits.argmax(-1) == labels).float())
        metrics = {"val/loss": self.val_loss, "val/accuracy": self.val_accuracy}
        self.log_evaluation(metrics, len(batch.nodes))

    def test_step(self, batch: Data, batch_idx: int) -> None:
        """Logs all metrics under `test/`; an evaluation of another split renames them after it."""
        losses, logits, labels = self._score(batch)
        if len(labels):  # a process may have no node
            self.test_metrics.update(logits, labels)
        self.log_evaluation(self.test_metrics, len(batch.nodes))
        self.test_loss.update(losses)
        self.log_evaluation({"test/loss": self.test_loss}, len(batch.nodes))
        truth = self.truth(batch)
        if truth is not None:  # every process computes it of the whole graph
            self.edge_auc.update(torch.tensor(truth, dtype=torch.float64))
            self.log_evaluation({"truth/edge_auc": self.edge_auc}, len(batch.nodes))

    def explain(self, batch: Data) -> AttentionMap:
        """Returns the scored map: the attention of `explain_layer`, averaged over its heads."""
        with torch.no_grad(), self.record_scored() as maps:
            self(batch)
        return self.compute_scored_map(maps)

    def record_scored(self) -> AbstractContextManager[Recording]:
        """Records the layer of the scored map."""
        return record(self.net, layers=[self.explain_layer])

    def compute_scored_map(self, maps: Recording) -> AttentionMap:
        """Returns the scored map of a recording."""
        (found,) = maps.values()
        return found.mean_heads()

    def maps(self, data: GraphData, options: MapOptions) -> GraphExplainer:
        from zoo.tasks.graph.explanation import GraphExplainer

        return GraphExplainer(self, data, options)

    def truth(self, batch: Data, explained: AttentionMap | None = None) -> float | None:
        """Computes the AUC with which weights separate gold from other edges at the batch's nodes, without self-loops.

        Args:
            batch: The graph.
            explained: Its scored map. Default: it is computed.

        Returns:
            The AUC, or None if the data has no gold edges.
        """
        if "gold" not in batch:
            return None
        support = batch.support
        is_scored = torch.zeros(len(batch.y), dtype=torch.bool, device=batch.y.device)
        is_scored[batch.nodes] = True
        at_nodes = is_scored[support.target.long()] & (support.source != support.target)
        found = self.explain(batch) if explained is None else explained
        return edge_auc(found.weights[:, 0], batch.gold, at_nodes)

    def gold_attention(self, batch: Data) -> dict[str, Tensor]:
        """Returns the gold attention of `explain_layer`, at the edges of the batch's receptive field."""
        if "gold" not in batch:
            return {}
        hop = batch.field.hops[self.explain_layer]
        site = list(sites(self))[self.explain_layer]
        return {site: batch.gold if hop.edges is None else batch.gold[hop.edges]}

    def predict_step(self, batch: Data, batch_idx: int = 0) -> dict[str, list[Any]]:
        """Returns predictions as columns, with one entry for each node; `loss` is None if the label is unknown."""
        probabilities = self(batch).float().softmax(-1)
        probability, predicted = probabilities.max(-1)
        loss = F.nll_loss(probabilities.clamp(min=1e-12).log(), batch.y.clamp(min=0), reduction="none")
        splits = {number: name for name, number in SPLITS.items()}
        labels = batch.y.tolist()
        return {
            "id": list(batch.ids),
            "split": [splits.get(number, "") for number in batch.split.tolist()],
            "label": [batch.label_names[y] if y >= 0 else "" for y in labels],
            "prediction": [batch.label_names[y] for y in predicted.tolist()],
            "probability": probability.tolist(),
            "loss": [value if y >= 0 else None for value, y in zip(loss.tolist(), labels, strict=True)],
        }

    def baselines(self, data: GraphData) -> Sequence[Baseline]:
        graph = data.graph
        about = graph.labels.numpy(), graph.split.numpy(), len(graph.label_names)
        regression = fit_logistic_regression(
            "logistic regression without edges", lambda: to_array(graph.features), *about, is_cheap=False
        )
        return [predict_majority(*about), regression]

    def shrink_batch(self, batch: Data, share: float) -> Data:
        """Shrinks the receptive field: memory grows with its nodes and edges."""
        found = copy.copy(batch)
        found.field = self._field(batch, batch.nodes).shrink(share)
        found.nodes = batch.nodes[: found.field.hops[-1].support.pattern.shape[0]]
        return found

    def invariants(self, batch: Data) -> Sequence[Invariance]:
        """Returns a change of features outside a node's receptive field, which must not change its output."""
        node = batch.nodes[:1]
        near = torch.zeros(len(batch.y), dtype=torch.bool, device=batch.y.device)
        near[node] = True
        support = batch.support
        for _ in self.net.layers:
            near = near.index_fill(0, support.source[near[support.target.long()]].long(), True)
        far = (~near).nonzero().squeeze(1)
        if not len(far):
            return ()
        changed = copy.copy(batch)
        changed.x = negate_rows(batch.x, far)
        return (Invariance(f"nodes more than {len(self.net.layers)} edges away", changed, lambda out: out[node]),)

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Returns vocabulary -> parameter -> the axis that has one entry for each name."""
        found = self.net.vocabularies()
        return {name: {f"net.{p}": axis for p, axis in axes.items()} for name, axes in found.items()}

    def _score(self, batch: Data) -> tuple[Float[Tensor, " n"], Float[Tensor, "n classes"], Int[Tensor, " n"]]:
        """Returns losses, logits and labels of this process's share of the nodes.

        Every process computes the whole split, because sums over another part of a graph are rounded differently, so
        that the results do not depend on the number of processes.
        """
        logits = distributed.shard(self._logits(batch, batch.nodes))
        labels = batch.y.index_select(0, distributed.shard(batch.nodes))
        return F.cross_entropy(logits, labels, reduction="none"), logits, labels

    def _logits(self, batch: Data, nodes: Int[Tensor, " n"]) -> Float[Tensor, "n classes"]:
        return self.net.on_field(self._field(batch, nodes))

    def _field(self, batch: Data, nodes: Int[Tensor, " n"]) -> Field:
        if "field" not in batch:  # kept with the batch, which is the same in every epoch
            batch.field = receptive_field(batch.x, batch.support, nodes, len(self.net.layers))
        found: Field = batch.field
        return found
