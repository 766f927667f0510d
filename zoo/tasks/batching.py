"""Options of batches, and the examples of a split, for all domains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.types import NonNegativeInt, PositiveInt, validate_ranges


@validate_ranges
@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """The options of `data` that all domains share.

    Args:
        max_epochs: Maximum number of passes over the training split.
        batch_size: Number of examples in a training step, over all processes. Default: all.
        eval_batch_size: Number of examples in a step of evaluation. Default: `batch_size`.
        eval_examples: Maximum number of training examples in the evaluation at the end. Default: all. It has no effect
            if a split is a single example, such as the nodes of a graph.
        num_workers: Number of worker processes that read and augment examples; 0 uses the main process.
    """

    max_epochs: PositiveInt
    batch_size: PositiveInt | None = None
    eval_batch_size: PositiveInt | None = None
    eval_examples: PositiveInt | None = None
    num_workers: NonNegativeInt = 0


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The examples of one split, as arguments of `zoo.data.loader.Loader`.

    Args:
        entries: The examples, or indices from which `collate` makes them.
        collate: Makes a batch of a list of entries.
        lengths: Length of each entry, to make batches of similar length. Default: batches ignore lengths.
        max_tokens: Largest number of tokens in a batch, where each entry counts as much as the longest. Default: no
            limit.
        augment: Changes an entry at random.
        shared: If True, each process gets its part of a batch; if False, the whole batch.
        shorten: `(entry, length) -> entry` cuts an entry to a length, by which the preflight estimates memory. Default:
            entries cannot be cut.
        unit: What lengths count, in the singular.
    """

    entries: Sequence[Any]
    collate: Callable[[list[Any]], Any]
    lengths: Sequence[int] | None = None
    max_tokens: int | None = None
    augment: Callable[[Any], Any] | None = None
    shared: bool = True
    shorten: Callable[[Any, int], Any] | None = None
    unit: str = "token"
