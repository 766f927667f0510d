"""What is learned and measured: the answer, and whether the map points at the fact that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, no_grad
from torch.nn import functional as F

from zoo.extend import AttentionMap, MapOptions, OptimizerConfig, PositiveInt, Task, distributed, pointing, record
from zoo_recall.data import Facts
from zoo_recall.maps import RecallMaps
from zoo_recall.net import RecallNet


class Recall(Task):
    """Cross-entropy of the answer among all words.

    Args:
        net: `(words) -> RecallNet`.
    """

    primary, primary_mode, headline = "val/accuracy", "max", ("accuracy", "loss")

    def __init__(self, *, net: Callable[..., RecallNet], optimization: OptimizerConfig, words: PositiveInt) -> None:
        super().__init__(optimization=optimization)
        self.net = net(words=words)
        self.loss, self.accuracy, self.pointing = (distributed.GlobalMean() for _ in range(3))

    def forward(self, batch: Facts) -> Tensor:
        logits: Tensor = self.net(batch.facts, batch.question, batch.is_fact)
        return logits

    def training_step(self, batch: Facts, batch_idx: int) -> Tensor:
        loss = distributed.mean_loss(F.cross_entropy(self(batch), batch.answer, reduction="sum"), len(batch.answer))
        self.log_training({"train/loss": loss}, len(batch.answer))
        return loss

    def validation_step(self, batch: Facts, batch_idx: int) -> None:
        self._measure(batch, "val")

    def test_step(self, batch: Facts, batch_idx: int) -> None:
        self._measure(batch, "test")
        self.pointing.update(self.pointing_at(batch))
        self.log_evaluation({"truth/pointing_accuracy": self.pointing}, len(batch.answer))

    def explain(self, batch: Facts) -> AttentionMap:
        """The only site's map, averaged over its heads."""
        with no_grad(), record(self.net) as maps:
            self(batch)
        (found,) = maps.values()
        return found.mean_heads()

    def pointing_at(self, batch: Facts) -> Tensor:
        """For each question, 1 where its map points at the fact that is asked for."""
        return pointing(self.explain(batch).weights[:, 0], batch.gold)

    def maps(self, data: Any, options: MapOptions) -> RecallMaps:
        return RecallMaps(self, data, options)

    def predict_step(self, batch: Facts, batch_idx: int = 0) -> dict[str, list[Any]]:
        logits = self(batch).float()
        probability, predicted = logits.softmax(-1).max(-1)
        return {
            "id": [each.id for each in batch.examples],
            "split": [each.split for each in batch.examples],
            "label": [each.answer for each in batch.examples],
            "prediction": [batch.words[y] for y in predicted.tolist()],
            "probability": probability.tolist(),
            "loss": F.cross_entropy(logits, batch.answer, reduction="none").tolist(),
        }

    def vocabularies(self) -> dict[str, dict[str, int]]:
        return {"words": {"net.words.weight": 0, "net.out.weight": 0, "net.out.bias": 0}}

    def _measure(self, batch: Facts, split: str) -> None:
        logits = self(batch)
        self.loss.update(F.cross_entropy(logits, batch.answer, reduction="none"))
        self.accuracy.update((logits.argmax(-1) == batch.answer).float())
        metrics = {f"{split}/loss": self.loss, f"{split}/accuracy": self.accuracy}
        self.log_evaluation(metrics, len(batch.answer))
