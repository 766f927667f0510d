"""A small dense model on sequences: what graphs do not exercise of a run. Test-only; see `conftest.dense`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import MeanMetric

from zoo.attention import AttentionMap
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Task, TaskData
from zoo.tasks.batching import BatchOptions, Examples
from zoo.tasks.dataset_registry import dataset

__all__ = ["DenseData", "DenseTask", "ErrorTask", "sequences"]


class DenseTask(Task):
    """The mean of the embeddings, batch norm, dropout, a class."""

    primary = "val/accuracy"
    primary_mode = "max"
    headline = ("loss",)

    def __init__(self, *, optimization: OptimizerConfig, classes: int, dropout: float = 0.0) -> None:
        super().__init__(optimization=optimization)
        self.embed = torch.nn.EmbeddingBag(20, 8, padding_idx=0)
        self.norm = torch.nn.BatchNorm1d(8)
        self.dropout = torch.nn.Dropout(dropout)
        self.out = torch.nn.Linear(8, classes)
        self.mean = MeanMetric()

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        logits: Tensor = self.out(self.dropout(self.norm(self.embed(batch[0]))))
        return logits

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = F.cross_entropy(self(batch), batch[1])
        size = len(batch[1])
        self.log("train/loss", loss, on_step=True, on_epoch=True, batch_size=size)
        self.log("train/worst", loss, on_step=False, on_epoch=True, reduce_fx="max", batch_size=size)
        self.mean.update(loss.detach())
        self.log("train/mean", self.mean, on_step=False, on_epoch=True, batch_size=size)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        logits = self(batch)
        accuracy = (logits.argmax(-1) == batch[1]).float().mean()
        loss = F.cross_entropy(logits, batch[1])
        values = {"val/loss": loss, "val/accuracy": accuracy, "val/error": 1 - accuracy}
        self.log_dict(values, batch_size=len(batch[1]))

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("test/loss", F.cross_entropy(self(batch), batch[1]), batch_size=len(batch[1]))

    def explain(self, batch: Any) -> AttentionMap:
        raise NotImplementedError

    def predict_step(self, batch: Any, batch_idx: int = 0) -> dict[str, list[Any]]:
        raise NotImplementedError

    def vocabularies(self) -> dict[str, dict[str, int]]:
        return {}


class ErrorTask(DenseTask):
    """The same, chosen by a metric of which less is better."""

    primary = "val/error"
    primary_mode = "min"


class DenseData(TaskData):
    """Sequences of 2 to 9 numbers; the class is the sum modulo 3."""

    def __init__(self, source: int, batching: BatchOptions, *, buckets: bool = False, augment: bool = False) -> None:
        super().__init__(source, batching)
        self.buckets = buckets
        self.augment = augment

    def read(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(1)
        lengths = torch.randint(2, 10, (self.source,), generator=generator).tolist()
        return [torch.randint(1, 20, (length,), generator=generator) for length in lengths]

    def sizes(self) -> dict[str, int]:
        return {"classes": 3}

    def threads(self) -> int | None:
        return 1

    def input_source(self, paths: Sequence[Path], state: dict[str, Any]) -> int:
        raise NotImplementedError

    def examples(self, split: str, *, training: bool = False) -> Examples:
        lengths = [len(each) for each in self.content] if training and self.buckets else None
        augment = noisy if training and self.augment else None
        return Examples(entries=self.content, collate=padded, lengths=lengths, augment=augment)


@dataset(DenseData)
def sequences(*, count: int = 26) -> int:
    """So many sequences."""
    return count


def padded(examples: list[Tensor]) -> tuple[Tensor, Tensor]:
    return torch.nn.utils.rnn.pad_sequence(examples, batch_first=True), torch.stack([e.sum() % 3 for e in examples])


def noisy(example: Tensor) -> Tensor:
    """Draws from the global generator, as torchvision's transforms do."""
    return torch.where(torch.rand(len(example)) < 0.2, torch.randint(1, 20, (len(example),)), example)
