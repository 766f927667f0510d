"""A packed batch of users: the items of all users in one sequence, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from zoo.attention.kernels.cache import outside_inference_mode
from zoo.data.transfer import to_device
from zoo.nn.segments import owners

UNKNOWN = "<unknown>"
"""Name of the row that rare items share."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The items that a model knows. All batches share one catalogue.

    Args:
        names: Ids of the items, as the user writes them. The number of an item is its index here.
        titles: Titles of the items, or None; "" for an item without a title.
        counts: Number of times that each item was chosen in training.
    """

    names: Sequence[str]
    titles: Sequence[str] | None
    counts: Int[Tensor, " items"]

    def __len__(self) -> int:
        return len(self.names)

    def title_of(self, item: int) -> str:
        """Returns the title of an item, or its id if it has no title."""
        return (self.titles[item] if self.titles is not None else "") or self.names[item]

    @property
    def unknown(self) -> int | None:
        """Number of the row `UNKNOWN`, which is the last and is never recommended; None if there is no such row."""
        return len(self.names) - 1 if len(self.names) and self.names[-1] == UNKNOWN else None


@dataclass(frozen=True, eq=False)
class SequenceBatch:
    """A batch of users, without padding.

    Args:
        items: Items of all users, user after user, oldest first.
        lengths: Number of items of each user, at least one.
        targets: Item that follows each position; -1 if it is unknown or must not be learned.
        held_out: Item of each user that is ranked; -1 if there is none.
        seen: Distinct items of each user, sorted, including those before the window. Sampled negatives avoid them.
            With leave-one-out they are the items of training, in the test split too.
        seen_lengths: Number of entries of `seen` of each user.
        ids: Ids of the users.
        splits: Split of each user: train, val or test; "" for a user in no split.
        catalogue: The items that the model knows.
        times: Time of each position, in seconds.
        gold: Distance from each position back to the item that decides the next one; -1 if it is unknown or not in the
            window.
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
        """Index after each user's last position."""
        return outside_inference_mode(lambda: self.lengths.cumsum(0))

    @property
    def starts(self) -> Int[Tensor, " b"]:
        """Index of each user's first position."""
        return self.ends - self.lengths

    @property
    def last(self) -> Int[Tensor, " b"]:
        """Index of each user's last position."""
        return self.ends - 1

    @cached_property
    def users(self) -> Int[Tensor, " n"]:
        """Index in the batch of the user to whom each position belongs."""
        return outside_inference_mode(lambda: owners(self.lengths, len(self.items)))

    @cached_property
    def seen_users(self) -> Int[Tensor, " s"]:
        """Index in the batch of the user to whom each entry of `seen` belongs."""
        return outside_inference_mode(lambda: owners(self.seen_lengths, len(self.seen)))

    @property
    def positions(self) -> Int[Tensor, " n"]:
        """Index of each position in its user's window."""
        return torch.arange(len(self.items), device=self.items.device) - self.starts[self.users]

    def to(self, device: torch.device | str) -> SequenceBatch:
        return to_device(self, device)
