"""Evaluates a split: its metrics, the protocol by which they are measured, and splits without examples."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from zoo.data.loader import Loader
from zoo.errors import DataError
from zoo.io.atomic import open_atomic
from zoo.tasks.base import Task, TaskData


def evaluate(trainer: pl.Trainer, module: Task, loader: Loader, split: str) -> dict[str, float]:
    """Returns the metrics of one split; none if it is empty. The truth score is that of the test split alone."""
    if not len(loader.examples):
        return {}
    try:
        (metrics,) = trainer.test(module, dataloaders=loader, verbose=False)
    except SystemExit as error:  # Lightning's answer to Ctrl-C
        raise KeyboardInterrupt from error
    finally:
        loader.close()
    split_metrics = {key.replace("test/", f"{split}/"): value for key, value in metrics.items()}
    return {key: value for key, value in split_metrics.items() if split == "test" or not key.startswith("truth/")}


def has_examples(data: TaskData, split: str) -> bool:
    """Returns whether a split has any examples, in any process."""
    return len(data.loader(split).examples) > 0


def check_trainable(data: TaskData) -> None:
    """Refuses data without a training example."""
    if not data.train_size():
        raise DataError(f"no example is left to train on. {data.empty_hint('train')}.")


def describe_empty_splits(data: TaskData) -> list[str]:
    """Returns a sentence for each held-out split without examples, which says what the run then lacks."""
    consequences = {
        "val": "the weights of the last epoch are kept, and nothing stops the training early",
        "test": "there will be no figures of it",
    }
    return [
        f"the split {split!r} has no example, so that {consequence}. {data.empty_hint(split)}."
        for split, consequence in consequences.items()
        if not has_examples(data, split)
    ]


def make_protocol(module: Task, data: Any, sample_protocol: str | None = None) -> dict[str, str]:
    """Returns the protocol of the metrics, where their names leave it open."""
    parts = [part for part in (data.protocol(), module.protocol(), sample_protocol) if part is not None]
    return {"protocol": ", ".join(parts)} if parts else {}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Writes a CSV file of rows with the same keys."""
    with open_atomic(path) as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path
