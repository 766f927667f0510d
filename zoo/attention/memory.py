"""What is attended to, as the steps of a decoder take it: prepared once, however many steps look at it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from zoo.attention.state import AttentionState


@dataclass(frozen=True, eq=False)
class Memory:
    """Keys and values that `Attend.prepare` has made of a sequence; `Attend.read` looks at them.

    It holds key heads only, unless the score makes a key of its own for each head (`General`, `Concat`).
    """

    key: Float[Tensor, "..."]
    value: Float[Tensor, "..."]
    support: Any
    """Which keys exist: what it forbids to every query is zero here."""
    attention: AttentionState | None = None
    """What the queries so far attended to, where the next depend on it."""
    room: _Room | None = None
    """Where keys and values stand, if there is place behind them."""

    @property
    def length(self) -> int:
        return self.key.shape[2]

    def at_step(self, first: int) -> Memory:
        """The same for queries of which so many came before."""
        support = self.support.at_step(first)
        return self if support is self.support else replace(self, support=support)

    def cleaned(self, support: Any) -> Memory:
        """For queries under a support. Nothing is done, and nothing copied, where it was prepared for this one."""
        if support is self.support:
            return self
        return replace(self, key=support.clean(self.key), value=support.clean(self.value), support=support, room=None)

    def append(self, later: Memory, support: Any) -> Memory:
        """A memory with more behind, and the support of all; this one stays as it is.

        Without gradients more than needed is allocated, twice the length, so that most steps copy nothing.
        """
        attention = None if self.attention is None else self.attention.extended(later.length)
        if torch.is_grad_enabled():
            key, value = torch.cat([self.key, later.key], 2), torch.cat([self.value, later.value], 2)
            return Memory(key, value, support, attention)
        start, stop = self.length, self.length + later.length
        room = self.room
        if room is None or not room.has_place(start, stop):
            room = _Room(_widened(self.key, 2 * stop), _widened(self.value, 2 * stop), taken=start)
        room.key[:, :, start:stop] = later.key
        room.value[:, :, start:stop] = later.value
        room.taken = stop
        return Memory(room.key[:, :, :stop], room.value[:, :, :stop], support, attention, room)

    def reorder(self, beams: Int[Tensor, " beams"]) -> Memory:
        """The memory of the hypotheses that survive, in their order."""
        attention = None if self.attention is None else self.attention.reorder(beams)
        key, value = self.key.index_select(0, beams), self.value.index_select(0, beams)
        return Memory(key, value, self.support.reorder(beams), attention)


@dataclass(eq=False)
class _Room:
    """Tensors that memories share; `taken` positions are in use, and only who has all of them may take more."""

    key: Tensor
    value: Tensor
    taken: int

    def has_place(self, start: int, stop: int) -> bool:
        is_writable = torch.is_inference_mode_enabled() or not self.key.is_inference()
        return self.taken == start and stop <= self.key.shape[2] and is_writable


def _widened(x: Float[Tensor, "b g k d"], length: int) -> Float[Tensor, "b g n d"]:
    wide = x.new_empty(*x.shape[:2], length, x.shape[3])
    wide[:, :, : x.shape[2]] = x
    return wide
