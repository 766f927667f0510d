"""Small batches of users, made from lists."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from zoo.tasks.dataset_registry import dataset
from zoo.tasks.recommendation.batch import Catalogue, SequenceBatch
from zoo.tasks.recommendation.data.interaction_log import Log
from zoo.tasks.recommendation.datamodule import HistoryData, HistorySource

Lists = Sequence[Sequence[int]]


def data_of(log: Log, **options: Any) -> HistoryData:
    """Returns the data module of a log, composed as from a configuration."""
    made = dataset(HistoryData)(lambda: HistorySource(lambda: log))
    return made(**({"max_epochs": 1, "batch_size": 3, "length": 4} | options))


def users(
    windows: Lists,
    *,
    items: int,
    seen: Lists | None = None,
    held_out: Sequence[int] | None = None,
    counts: Sequence[int] | None = None,
    split: str = "val",
    names: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
) -> SequenceBatch:
    """Returns a batch of these users; by default they have seen the items in their windows."""
    flat = [sorted(set(each)) for each in (windows if seen is None else seen)]
    return SequenceBatch(
        items=numbers(item for window in windows for item in window),
        lengths=numbers(map(len, windows)),
        targets=numbers(item for window in windows for item in [*window[1:], -1]),
        held_out=numbers([-1] * len(windows) if held_out is None else held_out),
        seen=numbers(item for each in flat for item in each),
        seen_lengths=numbers(map(len, flat)),
        ids=tuple(map(str, range(len(windows)))) if ids is None else tuple(ids),
        splits=(split,) * len(windows),
        catalogue=Catalogue(
            names=[str(item) for item in range(items)] if names is None else names,
            titles=None,
            counts=torch.zeros(items, dtype=torch.int64) if counts is None else numbers(counts),
        ),
    )


def numbers(values) -> Tensor:
    return torch.tensor(list(values), dtype=torch.int64)
