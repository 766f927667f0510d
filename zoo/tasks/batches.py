"""How examples become batches, in every domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch

from zoo.attention.ranges import Count, Natural
from zoo.errors import ConfigError

Batch = TypeVar("Batch")


@dataclass(frozen=True, kw_only=True)
class Batching:
    """The options of `data` that all domains share.

    Args:
        max_epochs: Passes over the training split at most.
        batch_size: Examples a training step, over all processes; None: all at once.
        eval_batch_size: Examples a step of evaluation; None: as in training.
        eval_examples: At most so many examples of the training split in the evaluation at the end; None: all. It has
            no effect where a split is one example, as the nodes of a graph are.
        num_workers: Processes that read and change examples; 0: this one.
    """

    max_epochs: Count
    batch_size: Count | None = None
    eval_batch_size: Count | None = None
    eval_examples: Count | None = None
    num_workers: Natural = 0

    def __post_init__(self) -> None:
        for name in ("batch_size", "eval_batch_size"):
            size = getattr(self, name)
            if size is not None and size < 1:
                otherwise = "all at once" if name == "batch_size" else "as in training"
                raise ConfigError(f"data.{name}={size}: write a whole number from 1, or null: {otherwise}")


@dataclass(frozen=True, kw_only=True)
class Examples:
    """One split as the loader takes it (`zoo.data.loader.Loader`).

    Args:
        entries: The examples, or what `collate` makes them of.
        collate: Makes a batch of some of the entries.
        lengths: Of the entries, where batches are to be of similar length.
        augment: Changes an entry at random.
        shared: Whether each process takes its part of a batch, and not the module its part of what is scored.
    """

    entries: Sequence[Any]
    collate: Callable[[list[Any]], Any]
    lengths: Sequence[int] | None = None
    augment: Callable[[Any], Any] | None = None
    shared: bool = True


def moved(batch: Batch, device: torch.device | str) -> Batch:
    """A batch, a dataclass, with all of it on a device; itself where it is there already."""
    parts = {field.name: getattr(batch, field.name) for field in fields(batch)}  # type: ignore[arg-type]
    elsewhere = {name: part.to(device) for name, part in parts.items() if hasattr(part, "to")}
    if all(part is parts[name] for name, part in elsewhere.items()):
        return batch
    return replace(batch, **elsewhere)  # type: ignore[type-var]
