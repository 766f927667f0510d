"""What the nets, the tasks and the maps see of users: a packed batch, all users' items one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from zoo.attention.kernels.kept import for_later
from zoo.tasks.batches import moved
from zoo.tasks.ranges import owners

UNKNOWN = "<unknown>"
"""The row that items share which are too rare for one of their own."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The items that a model knows; all batches share it.

    Args:
        names: Their ids, as the user writes them; an item's number is its place here.
        titles: What is shown for them, where that is known.
        counts: How often each was chosen in training.
    """

    names: Sequence[str]
    titles: Sequence[str] | None
    counts: Int[Tensor, " items"]

    def __len__(self) -> int:
        return len(self.names)

    def shown(self, item: int) -> str:
        """The title, or the id where there is none."""
        return (self.titles[item] if self.titles is not None else "") or self.names[item]

    @property
    def unknown(self) -> int | None:
        """The number of the row `UNKNOWN`, which is never recommended; it is the last one, where there is one."""
        return len(self.names) - 1 if len(self.names) and self.names[-1] == UNKNOWN else None


@dataclass(frozen=True, eq=False)
class Histories:
    """A batch of users; nothing is padded.

    Args:
        items: All users' items, user after user, oldest first.
        lengths: How many of them each user has, at least one.
        targets: The item that follows each position; -1 where it is not known or not to be learned.
        held_out: The item to be ranked; -1 where there is none.
        seen: Each user's distinct items up to here, sorted, also those before the window: what sampled negatives avoid.
            For leave-one-out these are the items of training, in the test split too.
        seen_lengths: How many of them each user has.
        ids: Of the users.
        splits: train, val or test; "" where the user is in none.
        catalogue: The items.
        times: Of each position, in seconds.
        gold: How many positions back from each position lies what decides the next item; -1: not known, or not here.
    """

    items: Int[Tensor, " n"]
    lengths: Int[Tensor, " b"]
    targets: Int[Tensor, " n"]
    held_out: Int[Tensor, " b"]
    seen: Int[Tensor, " s"]
    seen_lengths: Int[Tensor, " b"]
    ids: tuple[str, ...]
    splits: tuple[str, ...]
    catalogue: Catalogue
    times: Int[Tensor, " n"] | None = None
    gold: Int[Tensor, " n"] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def ends(self) -> Int[Tensor, " b"]:
        """The index after each user's last position."""
        return for_later(lambda: self.lengths.cumsum(0))

    @property
    def starts(self) -> Int[Tensor, " b"]:
        """The index of each user's first position."""
        return self.ends - self.lengths

    @property
    def last(self) -> Int[Tensor, " b"]:
        """The index of each user's last position."""
        return self.ends - 1

    @cached_property
    def users(self) -> Int[Tensor, " n"]:
        """The row, from 0, to which each position belongs."""
        return for_later(lambda: owners(self.lengths, len(self.items)))

    @cached_property
    def seen_users(self) -> Int[Tensor, " s"]:
        """The row to which each entry of `seen` belongs."""
        return for_later(lambda: owners(self.seen_lengths, len(self.seen)))

    @property
    def positions(self) -> Int[Tensor, " n"]:
        """The place of each position in its user's window, from 0."""
        return torch.arange(len(self.items), device=self.items.device) - self.starts[self.users]

    def to(self, device: torch.device | str) -> Histories:
        return moved(self, device)
