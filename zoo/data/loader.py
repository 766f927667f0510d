"""The one loader: which examples make up which batch is a function of (seed, epoch, position) and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch


class Loader:
    """Batches of `examples`, in an order drawn from (seed, epoch).

    Args:
        examples: Anything indexed by number.
        collate: Makes a batch of a list of examples.
        batch_size: Examples a batch; the last one may be smaller.
        shuffle: A new order every epoch. Without it the order is that of the examples.
        seed: Of the order.
    """

    def __init__(
        self,
        examples: Sequence[Any],
        *,
        collate: Callable[[list[Any]], Any],
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.examples = examples
        self.collate = collate
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return -(-len(self.examples) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        order = self.order(self.epoch)
        self.epoch += 1
        for start in range(0, len(order), self.batch_size):
            yield self.collate([self.examples[number] for number in order[start : start + self.batch_size]])

    def order(self, epoch: int) -> list[int]:
        """The numbers of the examples in the order in which this epoch takes them."""
        if not self.shuffle:
            return list(range(len(self.examples)))
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        return torch.randperm(len(self.examples), generator=generator).tolist()

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]
